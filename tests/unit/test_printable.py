"""What others wrote can't steer a terminal."""

import pytest

from tandemq.printable import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Text 1.0", "plain Text 1.0"),
        ("Grüße, 世界 🎉", "Grüße, 世界 🎉"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b31m", "\\x9b31m"),
        ("abc\u202egnp.exe", "abc\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("\x00\x7f\u2028", "\\x00\\x7f\\u2028"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown
    printable(text).encode()


def test_blocks_keep_their_lines() -> None:
    assert printable_lines("a\tb\n\x1b[1mc") == "a\tb\n\\x1b[1mc"
