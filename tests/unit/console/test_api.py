"""The JSON API is described, and under the rules of the pages."""

import base64
import json

from tests.unit.console.asgi import ask, make_console

from tandemq.console.access import COOKIE
from tandemq.console.api import ENDPOINTS, openapi
from tandemq.console.pages import ENDPOINTS as OF_PAGES


def test_every_path_is_in_the_description() -> None:
    found = json.loads(ask(make_console(), "GET", "/api/openapi.json").body)
    assert found["openapi"].startswith("3.1")
    for endpoint in (*ENDPOINTS, *OF_PAGES):
        path = endpoint.path.replace(":path", "")
        assert endpoint.method.lower() in found["paths"][path]
    names = [p["name"] for p in found["paths"]["/api/v1/topics/{topic}"]["get"]["parameters"]]
    assert names == ["topic"]
    assert openapi([])["paths"] == {}


def test_the_cluster_is_told_without_access_control() -> None:
    answer = ask(make_console(clusters=("c",)), "GET", "/api/v1/cluster")
    assert answer.status == 200
    assert json.loads(answer.body)["clusters"] == ["c"]


def test_with_access_control_an_account_is_wanted() -> None:
    console = make_console(refused=True)
    assert ask(console, "GET", "/api/v1/cluster").status == 401
    for header in ("Basic !!!", "Bearer x", "Basic " + base64.b64encode(b"no-colon").decode()):
        answer = ask(console, "GET", "/api/v1/cluster", headers={"authorization": header})
        assert answer.status == 401


def test_acts_want_json_and_the_token() -> None:
    console = make_console()
    token = console.sessions.token("abc")
    cookie = {"cookie": f"{COOKIE}=abc"}
    form = ask(console, "POST", "/api/v1/topics", headers={**cookie, "x-csrf-token": token}, body=b"topic=x")
    assert (form.status, "application/json" in form.body) == (400, True)
    headers = {**cookie, "content-type": "application/json"}
    assert ask(console, "POST", "/api/v1/topics", headers=headers, body=b"{}").status == 403
    away = ask(
        console, "POST", "/api/v1/topics", headers={**headers, "x-csrf-token": token}, body=b"{}", peer="10.0.0.9"
    )
    assert away.status == 403
    broken = ask(console, "POST", "/api/v1/topics", headers={**headers, "x-csrf-token": token}, body=b"[1")
    assert (broken.status, "no JSON" in broken.body) == (400, True)


def test_an_unset_snapshot_has_a_history() -> None:
    assert json.loads(ask(make_console(), "GET", "/api/v1/history").body)["times"] == []
