"""Hostile bodies are shown harmlessly, whatever they are asked to be shown as."""

import json

import pytest

from tandemq.console.bodies import HEX_MAX, JSON_MAX, SHOWN_MAX, summary, view

HOSTILE = b'<script>alert(1)</script>"&\x00\x1b[2J\xe2\x80\xae'


@pytest.mark.parametrize("how", ["json", "text", "hex"])
def test_nothing_of_a_body_becomes_markup(how: str) -> None:
    shown = view(HOSTILE, how)
    assert "<script" not in shown.html
    assert "\x1b" not in shown.html
    assert "\x00" not in shown.html
    assert "\u202e" not in shown.html


def test_json_is_pretty_and_marked_and_escaped() -> None:
    body = json.dumps({"<b>": "</pre><script>", "n": -1.5e3, "t": [True, None], "q": 'a"b\\'}).encode()
    shown = view(body, "json")
    assert shown.how == "json"
    assert "<b>&#34;&lt;b&gt;&#34;</b>" in shown.html
    assert "<script>" not in shown.html
    assert "<u>-1500.0</u>" in shown.html
    assert "\n" in shown.html


def test_what_is_no_json_is_text_and_what_is_no_text_is_bytes() -> None:
    assert view(b"plain", "json").how == "text"
    assert view(b"plain", "json").note == "it is no JSON"
    assert view(b"\xff\xfe\x00", "text").how == "hex"
    assert "ff fe 00" in view(b"\xff\xfe\x00", "text").html


def test_deep_json_is_no_error() -> None:
    assert view(b"[" * 100_000, "json").how == "text"


def test_a_large_body_is_cut_and_says_so() -> None:
    body = b"\xc3\xa4" * (2 * 1024 * 1024)
    shown = view(body, "text")
    assert (shown.how, shown.size) == ("text", len(body))
    assert shown.shown == SHOWN_MAX
    assert len(view(body, "hex").html) < 6 * HEX_MAX
    assert view(b"1" * (JSON_MAX + 1), "json").how == "text"


def test_a_character_cut_in_two_at_the_end_does_not_make_text_bytes() -> None:
    body = b"a" + b"\xc3\xa4" * SHOWN_MAX
    assert view(body, "text").how == "text"


def test_the_start_of_a_body_is_one_line() -> None:
    assert summary(b"a\nb") == "a\\nb"
    assert summary(b"x" * 500).endswith("…")
    assert summary(b"\xff") == "\ufffd"
