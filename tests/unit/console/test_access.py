"""Who may act: the rules that no page can forget."""

import pytest

from tandemq.console.access import IDLE_SECONDS, SESSIONS_MAX, Sessions, act_problem, host_is_ours, is_loopback

OWN = {"host": "127.0.0.1:8088", "origin": "http://127.0.0.1:8088", "sec-fetch-site": "same-origin"}


def problem(**changes: object) -> str | None:
    given = {"controlled": False, "signed_in": False, "peer": "127.0.0.1", "has_token": True, "headers": OWN}
    return act_problem(**{**given, **changes})  # type: ignore[arg-type]


def test_on_this_machine_acts_are_taken_without_an_account() -> None:
    assert problem() is None
    assert problem(peer="::1") is None
    assert problem(peer="::ffff:127.0.0.1") is None


def test_from_another_machine_they_are_not() -> None:
    assert "10.0.0.7" in str(problem(peer="10.0.0.7"))
    assert problem(peer="10.0.0.7", controlled=True, signed_in=True) is None
    assert problem(controlled=True) == "sign in first"


@pytest.mark.parametrize("headers", [{**OWN, "origin": "http://evil.example"}, {**OWN, "sec-fetch-site": "cross-site"}])
def test_another_site_can_not_act(headers: dict[str, str]) -> None:
    assert "another web site" in str(problem(headers=headers))


def test_an_act_without_its_token_is_refused() -> None:
    assert "reload" in str(problem(has_token=False))


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("127.0.0.1:8088", True), ("localhost:8088", True), ("[::1]:8088", True), ("10.0.0.1", True),
        ("console.lan:80", True), ("evil.example:8088", False), ("", False),
    ],
)  # fmt: skip
def test_a_rebound_name_is_not_ours(host: str, fine: bool) -> None:
    assert host_is_ours(host, "console.lan") is fine


def test_loopback_is_told_by_address_not_by_name() -> None:
    assert not is_loopback("localhost")
    assert not is_loopback("128.0.0.1")


def test_sessions_end_when_unused_and_are_bounded() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first, _ = sessions.open("ops", "s")
    now[0] = IDLE_SECONDS
    assert sessions.find(first.key) is first
    now[0] += IDLE_SECONDS + 1
    assert sessions.find(first.key) is None
    opened = [sessions.open(f"u{n}", "s") for n in range(SESSIONS_MAX + 1)]
    assert opened[-1][1] is opened[0][0], "the one unused for longest makes room"
    assert sessions.find(opened[0][0].key) is None


def test_a_token_fits_its_own_cookie_alone() -> None:
    sessions = Sessions(lambda: 0.0)
    assert sessions.has_token("one", sessions.token("one"))
    assert not sessions.has_token("two", sessions.token("one"))
    assert not sessions.has_token("", sessions.token(""))


def test_a_secret_is_not_in_what_is_printed() -> None:
    visitor, _ = Sessions(lambda: 0.0).open("ops", "hidden-thing")
    assert "hidden-thing" not in repr(visitor)


def test_a_token_that_is_no_ascii_is_only_wrong() -> None:
    sessions = Sessions(lambda: 0.0)
    assert not sessions.has_token("key", "tökén\ud800")
    assert sessions.has_token("key", sessions.token("key"))
