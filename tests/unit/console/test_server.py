"""Where the console listens."""

import pytest

from tandemq.console.server import parse_listen
from tandemq.errors import ConfigError


def test_addresses_are_understood() -> None:
    assert parse_listen("127.0.0.1:8088") == ("127.0.0.1", 8088)
    assert parse_listen("[::1]:0") == ("::1", 0)


@pytest.mark.parametrize("text", ["8088", ":8088", "host:", "host:x", "host:70000"])
def test_anything_else_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:8088"):
        parse_listen(text)
