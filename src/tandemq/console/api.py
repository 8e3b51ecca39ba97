"""The same for programs: a JSON API under the rules of the pages, described by OpenAPI at /api/openapi.json.

Without access control it answers everybody who reaches it and acts on this machine only. With it, a program sends an
account of the brokers as HTTP Basic credentials, or a browser's session. Acts need a JSON body, which no foreign form
can send, and from a browser the token of /api/v1/session.
"""

import base64
import binascii
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tandemq import __version__
from tandemq.console.access import COOKIE, TOKEN_HEADER, is_loopback
from tandemq.console.pages import ENDPOINTS as OF_PAGES
from tandemq.console.routes import Endpoint
from tandemq.console.visit import FORM_MAX, Visit
from tandemq.errors import ClientError, NoRoute, TandemError

if TYPE_CHECKING:
    from tandemq.console.app import Console


async def session(visit: Visit) -> Any:
    return {
        "account": visit.account,
        "csrf": visit.token,
        "controlled": visit.console.links.is_controlled,
        "mayAct": visit.may_act,
        "version": __version__,
    }


async def cluster(visit: Visit) -> Any:
    snapshot = visit.snapshot
    return {
        "atMs": snapshot.at_ms,
        "clusters": snapshot.clusters,
        "problem": snapshot.problem,
        "inTps": snapshot.in_tps,
        "outTps": snapshot.out_tps,
        "groups": [dataclasses.asdict(group) for group in snapshot.groups],
        "nameServers": [dataclasses.asdict(server) for server in snapshot.name_servers],
    }


async def history(visit: Visit) -> Any:
    watch = visit.link.watch
    came, went = watch.lag("in", ""), watch.lag("out", "")
    return {
        "times": [at // 1000 for at in came.times],
        "series": [{"name": "in", "values": list(came.values)}, {"name": "out", "values": list(went.values)}],
    }


async def events(visit: Visit) -> Any:
    wanted = visit.text("group")
    groups = [group.name for group in visit.snapshot.groups if not wanted or group.name == wanted]
    found = {name: visit.link.watch.timeline(name, 100) for name in groups}
    return {name: [dataclasses.asdict(change) for change in changes] for name, changes in found.items()}


async def acts(visit: Visit) -> Any:
    return [dataclasses.asdict(act) for act in visit.console.journal.newest()]


ENDPOINTS: list[Endpoint] = [
    Endpoint("GET", "/api/v1/session", "Who asks, and the token that acts from a browser carry.", session),
    Endpoint("GET", "/api/v1/cluster", "Groups, members, name servers, with verdicts.", cluster),
    Endpoint("GET", "/api/v1/history", "Messages in and out a second since the console began.", history),
    Endpoint("GET", "/api/v1/events", "What happened to each group.", events, {"group": "only this broker group"}),
    Endpoint("GET", "/api/v1/acts", "What was done through this console.", acts),
]


def api_routes(console: "Console") -> list[Route]:
    """Returns the routes of all endpoints and of their description."""
    endpoints = [*ENDPOINTS, *OF_PAGES]
    description = openapi(endpoints)

    async def described(request: Request) -> Response:
        return JSONResponse(description)

    async def docs(request: Request) -> Response:
        visit = await console.visit(request)
        if isinstance(visit, Response):
            return visit
        return HTMLResponse(console.page_html(visit, "api.html", {"endpoints": endpoints}))

    routes = [Route("/api/openapi.json", described), Route("/api/docs", docs)]
    return routes + [Route(item.path, _handler(console, item), methods=[item.method]) for item in endpoints]


def _handler(console: "Console", endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        visit = await _visit(console, request)
        if isinstance(visit, Response):
            return visit
        try:
            if endpoint.method != "GET":
                await _check_act(console, visit, request)
            response = JSONResponse(_plain(await endpoint.answer(visit)))
        except PermissionError as error:
            return _refused(403, str(error))
        except NoRoute as error:
            return _refused(404, str(error))
        except ClientError as error:
            return _refused(400, str(error))
        except TandemError as error:
            return _refused(502, str(error))
        if not request.cookies.get(COOKIE) and not request.headers.get("authorization"):
            response.set_cookie(COOKIE, request.state.key, httponly=True, samesite="strict", path="/")
        return response

    return handle


async def _visit(console: "Console", request: Request) -> Visit | Response:
    given = request.headers.get("authorization", "")
    if not given:
        visit = await console.visit(request, live=True)
        if isinstance(visit, Response):
            return _refused(401, "the cluster controls access: send an account of the brokers as Basic credentials")
        return visit
    account, secret = _basic(given)
    await console.links.open.watch.fresh()
    if not console.links.is_controlled:
        account = secret = ""
    elif problem := await console.sign_in_problem(account, secret):
        return _refused(401, problem)
    link = await console.links.of(account, secret)
    peer = request.client.host if request.client is not None else ""
    request.state.key = ""
    return Visit(request, console, link, account, "", is_loopback(peer), await link.watch.fresh())


def _basic(header: str) -> tuple[str, str]:
    kind, _, code = header.partition(" ")
    try:
        account, colon, secret = base64.b64decode(code, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return (account, secret) if kind.lower() == "basic" and colon else ("", "")


async def _check_act(console: "Console", visit: Visit, request: Request) -> None:
    """Reads the body into the form; raises PermissionError or ClientError if the request may not change anything."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise ClientError("Content-Type: application/json is expected")
    if visit.account and not request.cookies.get(COOKIE):
        pass  # proven by its credentials, which no browser adds by itself
    else:
        console.check_act(visit, request.headers.get(TOKEN_HEADER, ""))
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_MAX:
            raise ClientError(f"the body has more than {FORM_MAX:,} bytes")
    try:
        found = json.loads(body or b"{}")
    except ValueError as error:
        raise ClientError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ClientError("the body is no JSON object")
    visit.form = {
        str(name): [_text(item) for item in value] if isinstance(value, list) else [_text(value)]
        for name, value in found.items()
    }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else ""
    return value if isinstance(value, str) else json.dumps(value)


def _plain(value: Any) -> Any:
    """Returns values of the pages as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _refused(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status_code=status)


def openapi(endpoints: list[Endpoint]) -> dict[str, Any]:
    """Returns the OpenAPI document of the endpoints."""
    paths: dict[str, Any] = {}
    for item in endpoints:
        names = [part[1:-1].partition(":")[0] for part in item.path.split("/") if part.startswith("{")]
        operation: dict[str, Any] = {
            "summary": item.summary,
            "parameters": [_parameter(name, "path", "") for name in names]
            + [_parameter(name, "query", text) for name, text in item.query.items()],
            "responses": {
                "200": {"description": "done", "content": {"application/json": {"schema": {}}}},
                "default": {
                    "description": "what was wrong and what to do",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        }
        if item.method != "GET":
            properties = {name: {"description": text} for name, text in item.body.items()}
            schema = {"type": "object", "properties": properties}
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            operation["parameters"].append(_parameter(TOKEN_HEADER, "header", "token of /api/v1/session, for cookies"))
        path = item.path.replace(":path", "")
        paths.setdefault(path, {})[item.method.lower()] = operation
    error = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "TandemQ console", "version": __version__, "description": (__doc__ or "").strip()},
        "paths": paths,
        "components": {
            "schemas": {"Error": error},
            "securitySchemes": {
                "account": {"type": "http", "scheme": "basic"},
                "browser": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
        "security": [{}, {"account": []}, {"browser": []}],
    }


def _parameter(name: str, place: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
    return {**found, "description": text} if text else found
