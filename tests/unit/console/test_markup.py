"""Pieces of HTML escape what they are given and show what can't be seen."""

from tandemq.console.markup import status, when


def test_text_is_escaped_and_control_characters_are_shown() -> None:
    assert str(status("danger", "<script>\x1b[2J")) == ('<span class="status danger">&lt;script&gt;\\x1b[2J</span>')


def test_a_moment_that_is_not_known_says_so() -> None:
    assert "not known" in when(0, 1)
    assert 'datetime="' in when(1_794_995_770_592, 1_794_995_770_592)
