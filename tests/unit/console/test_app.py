"""The rules around every page: headers, hosts, sessions, tokens, and what is shown when something is wrong."""

from urllib.parse import urlencode

import pytest
from tests.unit.console.asgi import Answer, ask, make_console

from tandemq.console.access import COOKIE
from tandemq.console.pages import ACTS, PAGES
from tandemq.console.picture import Report, draw

EVIL = "<img src=x onerror=alert(1)>\x1b"


def post(console: object, path: str, fields: dict[str, str], **options: object) -> Answer:
    headers = {"content-type": "application/x-www-form-urlencoded", **options.pop("headers", {})}  # type: ignore[dict-item]
    return ask(console, "POST", path, headers=headers, body=urlencode(fields).encode(), **options)  # type: ignore[arg-type]


def test_every_answer_forbids_inline_script_framing_and_sniffing() -> None:
    for path in ("/cluster", "/static/console.js", "/nope", "/api/openapi.json"):
        headers = ask(make_console(), "GET", path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_a_foreign_host_name_gets_nothing() -> None:
    answer = ask(make_console(), "GET", "/cluster", headers={"host": "evil.example"})
    assert answer.status == 421
    assert "TandemQ" not in answer.body


def test_an_empty_cluster_says_what_to_do() -> None:
    answer = ask(make_console(), "GET", "/cluster")
    assert answer.status == 200
    assert "tandemq up" in answer.body
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=strict" in answer.headers["set-cookie"].lower()


def test_hostile_names_are_shown_harmlessly() -> None:
    report = Report(group=EVIL, broker_id=0, address=EVIL, kind="TandemQ", heard_ms=1, error=EVIL, answers=False,
                    detail={"role": "master", "phase": EVIL, "replicas": [], "end": 5})  # fmt: skip
    console = make_console(groups=draw([report], 2), reports=(report,), clusters=(EVIL,), problem=EVIL)
    for path in ("/cluster", "/replication"):
        body = ask(console, "GET", path).body
        assert "<img src=x" not in body
        assert "&lt;img src=x" in body
        assert "\x1b" not in body


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.path)
def test_no_act_is_done_without_its_token(act: object) -> None:
    """Every act there is: a new one can't forget it."""
    path = act.path.replace("{topic:path}", "t").replace("{group:path}", "g")  # type: ignore[attr-defined]
    for headers in ({}, {"cookie": f"{COOKIE}=abc"}):
        answer = post(make_console(), path, {"name": "t", "csrf": "wrong"}, headers=headers)
        assert answer.status == 403
        assert "reload" in answer.body


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.path)
def test_no_act_is_taken_from_another_machine_without_access_control(act: object) -> None:
    console = make_console()
    path = act.path.replace("{topic:path}", "t").replace("{group:path}", "g")  # type: ignore[attr-defined]
    headers = {"cookie": f"{COOKIE}=abc"}
    answer = post(console, path, {"csrf": console.sessions.token("abc")}, headers=headers, peer="10.0.0.9")
    assert answer.status == 403
    assert "10.0.0.9" in answer.body


def test_acts_from_another_site_are_refused_even_with_the_token() -> None:
    console = make_console()
    headers = {"cookie": f"{COOKIE}=abc", "origin": "http://evil.example"}
    answer = post(console, "/act/topics/save", {"csrf": console.sessions.token("abc")}, headers=headers)
    assert answer.status == 403


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_with_access_control_no_page_is_shown_to_strangers(page: object) -> None:
    """Every page there is, and its live stream."""
    path = page.path.replace("{topic:path}", "t").replace("{group:path}", "g")  # type: ignore[attr-defined]
    console = make_console(refused=True)
    answer = ask(console, "GET", f"{path}?q=1")
    assert (answer.status, answer.headers["location"][:12]) == (303, "/login?next=")
    assert ask(console, "GET", f"/live{path}").status == 401


def test_signing_in_goes_back_to_our_own_pages_only() -> None:
    for target in ("//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        body = ask(make_console(refused=True), "GET", "/login?" + urlencode({"next": target})).body
        assert 'name="next" value="/cluster"' in body
    assert 'value="/topics"' in ask(make_console(refused=True), "GET", "/login?next=/topics").body


def test_signing_in_wants_its_token_and_both_keys() -> None:
    console = make_console(refused=True)
    headers = {"cookie": f"{COOKIE}=abc"}
    assert post(console, "/login", {"account": "a", "secret": "b"}, headers=headers).status == 403
    answer = post(console, "/login", {"account": "a", "csrf": console.sessions.token("abc")}, headers=headers)
    assert answer.status == 403
    assert "secret key" in answer.body


def test_a_page_that_is_not_there_says_so() -> None:
    answer = ask(make_console(), "GET", "/%3Cscript%3E")
    assert answer.status == 404
    assert "<script>" not in answer.body.replace('<script src="/static/', "")


def test_what_is_typed_into_a_url_is_bounded() -> None:
    assert ask(make_console(), "GET", "/cluster?broker=" + "x" * 100_000).status == 414
    assert len(ask(make_console(), "GET", "/cluster?broker=" + "x" * 7_000).body) < 40_000
