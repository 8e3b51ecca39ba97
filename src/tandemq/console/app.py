"""The web application: routes, headers, sessions, errors as pages, and the live stream. Pages are in `pages/`."""

import asyncio
import contextlib
import functools
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import jinja2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tandemq import __version__
from tandemq.client.config import ClientConfig
from tandemq.clock import Clock, SystemClock
from tandemq.console import markup, texts
from tandemq.console.access import (
    COOKIE,
    TOKEN_FIELD,
    Sessions,
    act_problem,
    host_is_ours,
    is_loopback,
)
from tandemq.console.api import api_routes
from tandemq.console.axis import path as line_path
from tandemq.console.axis import percent
from tandemq.console.journal import Journal
from tandemq.console.links import Links
from tandemq.console.pages import ACTS, PAGES
from tandemq.console.pages.messages import raw_body
from tandemq.console.routes import ActRoute, Page
from tandemq.console.versions import version_text
from tandemq.console.visit import Visit, pattern, read_form, segment
from tandemq.console.watch import LOOK_SECONDS, Watch
from tandemq.errors import ClientError, NoRoute, RemotingError, ReplyError, TandemError
from tandemq.printable import printable, printable_lines

log = logging.getLogger("tandemq.console")

STREAMS_MAX = 64
"""Open pages that are kept live at a time; more are shown, and told to reload by hand."""
URL_MAX = 8_192
"""Characters of an address: names and values of ours need a tenth of it."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Console:
    """The application and what it holds: links into the cluster, sessions, the journal of acts."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        listen_host: str = "127.0.0.1",
        clock: Clock | None = None,
        keyed: ClientConfig | None = None,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.listen_host = listen_host
        self.links = Links(config, self.clock, keyed)
        self.sessions = Sessions(self.clock.monotonic)
        self.journal = Journal()
        self._streams = 0
        self._stopping = asyncio.Event()
        self.templates = _templates()
        self.app = self._application()

    async def start(self) -> None:
        await self.links.start()
        await self.links.open.watch.fresh()

    def end_streams(self) -> None:
        """Lets open pages go, so that a server that stops need not wait for them."""
        self._stopping.set()

    async def stop(self) -> None:
        self.end_streams()
        await self.links.close()

    # routes

    def _application(self) -> Starlette:
        routes: list[Any] = [Route("/", lambda request: RedirectResponse("/cluster"))]
        for page in PAGES:
            routes.append(Route(page.path, self._page(page)))
            routes.append(Route("/live" + page.path, self._live(page)))
        routes += [Route(act.path, self._act(act), methods=["POST"]) for act in ACTS]
        routes += [
            Route("/login", self._login_page),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._act(ActRoute("/logout", self._logout)), methods=["POST"]),
            Route("/messages/raw", self._raw),
            Route("/healthz", lambda request: PlainTextResponse("ok\n")),
            *api_routes(self),
            Mount("/static", StaticFiles(packages=[("tandemq.console", "static")])),
        ]
        app = Starlette(routes=routes, exception_handlers={404: self._not_found, 405: self._not_found})
        app.add_middleware(_Guard, console=self)
        return app

    def _page(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            visit = await self.visit(request)
            if isinstance(visit, Response):
                return visit
            try:
                values = await page.build(visit)
            except TandemError as error:
                return self._trouble(visit, error)
            return self._with_cookie(visit, self.render(visit, page.template, values))

        return show

    def _act(self, route: ActRoute) -> Callable[[Request], Awaitable[Response]]:
        async def do(request: Request) -> Response:
            visit = await self.visit(request)
            if isinstance(visit, Response):
                return visit
            try:
                visit.form = await read_form(request)
                self.check_act(visit, visit.field(TOKEN_FIELD))
            except PermissionError as refusal:
                return self.render(visit, "trouble.html", _told("Not done", str(refusal)), status=403)
            except ClientError as error:
                return self.render(visit, "trouble.html", _told("Not done", str(error)), status=400)
            try:
                target = await route.do(visit)
            except TandemError as error:
                return self._trouble(visit, error)
            response = RedirectResponse(target, status_code=303)
            if request.url.path == "/logout":
                response.delete_cookie(COOKIE, path="/")
            return response

        return do

    def check_act(self, visit: Visit, token: str) -> None:
        """Raises PermissionError with the reason if this request may not change anything."""
        request = visit.request
        problem = act_problem(
            controlled=self.links.is_controlled,
            signed_in=bool(visit.account),
            peer=_peer(request),
            has_token=self.sessions.has_token(request.cookies.get(COOKIE, ""), token),
            headers=request.headers,
        )
        if problem is not None:
            raise PermissionError(problem)

    def _live(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def stream(request: Request) -> Response:
            visit = await self.visit(request, live=True)
            if isinstance(visit, Response):
                return visit
            if self._streams >= STREAMS_MAX:
                return PlainTextResponse(f"{STREAMS_MAX} pages are live already: reload by hand\n", status_code=503)
            return StreamingResponse(
                self._events(visit, page), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
            )

        return stream

    async def _events(self, visit: Visit, page: Page) -> AsyncIterator[str]:
        """Yields the blocks of a page that have changed, each time the cluster was looked at.

        A page that asks brokers for more than a look does is built less often; what every page says of the cluster's
        health is sent with each look.
        """
        template = self.templates.get_template(page.template)
        common = _live_blocks(self.templates.get_template("base.html"), without=template)
        blocks = common | _live_blocks(template)
        sent: dict[str, str] = {}
        self._streams += 1
        watch = visit.link.watch
        try:
            with watch.viewing():
                due = 0.0
                while not self._stopping.is_set() and not await visit.request.is_disconnected():
                    visit.snapshot = watch.snapshot
                    number = visit.snapshot.number
                    if page.every <= LOOK_SECONDS or self.clock.monotonic() >= due:
                        due = self.clock.monotonic() + page.every - 0.2
                        yield await self._changed(visit, page, template, blocks, sent)
                    else:
                        yield self._changed_of({}, visit, template, common, sent)
                    await self._next_look(watch, number)
        finally:
            self._streams -= 1

    async def _next_look(self, watch: Watch, number: int) -> None:
        waits = [asyncio.ensure_future(watch.after(number)), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(waits, timeout=5.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()

    async def _changed(
        self, visit: Visit, page: Page, template: jinja2.Template, blocks: Mapping[str, Any], sent: dict[str, str]
    ) -> str:
        try:
            return self._changed_of(await page.build(visit), visit, template, blocks, sent)
        except TandemError as error:
            return _event("trouble", {"text": printable(str(error))})

    def _changed_of(
        self,
        values: Mapping[str, Any],
        visit: Visit,
        template: jinja2.Template,
        blocks: Mapping[str, Any],
        sent: dict[str, str],
    ) -> str:
        context = template.new_context(self._values(visit, values))
        found = {name: "".join(block(context)) for name, block in blocks.items()}
        changed = {name: html for name, html in found.items() if sent.get(name) != html}
        sent.update(changed)
        return _event("look", {"at": texts.clock(visit.now_ms, visit.now_ms), "blocks": changed})

    async def _raw(self, request: Request) -> Response:
        """Gives the whole body of a message as a file; never as something a browser would show."""
        visit = await self.visit(request)
        if isinstance(visit, Response):
            return visit
        try:
            body = await raw_body(visit)
        except TandemError as error:
            return self._trouble(visit, error)
        headers = {"content-disposition": 'attachment; filename="message.bin"'}
        return Response(body, media_type="application/octet-stream", headers=headers)

    # signing in

    async def _login_page(self, request: Request) -> Response:
        key = request.cookies.get(COOKIE, "") or self.sessions.new_key()
        return self._login_form(request, key, "")

    def _login_form(self, request: Request, key: str, problem: str, status: int = 200) -> Response:
        template = self.templates.get_template("login.html")
        html = template.render(
            token=self.sessions.token(key), problem=problem, next=_local(request.query_params.get("next", "")),
            theme=_theme(request), version=__version__,
        )  # fmt: skip
        response = HTMLResponse(html, status_code=status)
        _set_cookie(response, key)
        return response

    async def _login(self, request: Request) -> Response:
        key = request.cookies.get(COOKIE, "")
        try:
            form = {name: values[0] for name, values in (await read_form(request)).items()}
        except ClientError as error:
            return self._login_form(request, key, str(error), 400)
        headers = request.headers
        has_token = self.sessions.has_token(key, form.get(TOKEN_FIELD, ""))
        if problem := act_problem(controlled=True, signed_in=True, peer="", has_token=has_token, headers=headers):
            return self._login_form(request, key or self.sessions.new_key(), problem, 403)
        account, secret = form.get("account", "")[:255], form.get("secret", "")[:255]
        problem = await self.sign_in_problem(account, secret)
        if problem:
            return self._login_form(request, key, problem, 403)
        visitor, gone = self.sessions.open(account, secret)  # a new cookie: one from before proves nothing
        if gone is not None and not self.sessions.is_used(gone.account, gone.secret):
            await self.links.drop(gone.account, gone.secret)
        response = RedirectResponse(_local(form.get("next", "")), status_code=303)
        _set_cookie(response, visitor.key)
        return response

    async def sign_in_problem(self, account: str, secret: str) -> str:
        """Returns why an account can't be used, empty if the cluster takes it."""
        if not account or not secret:
            return "give the access key and the secret key of an account of the brokers"
        was_open = self.sessions.is_used(account, secret)
        link = await self.links.of(account, secret)
        snapshot = await link.watch.fresh()
        reports = snapshot.reports
        refusals = [server.error for server in snapshot.name_servers if server.answers and server.error]
        refusals += [report.error for report in reports if report.error]
        # Who is refused for want of a permission has proven the account: the brokers tell it what they tell it.
        if any(report.detail for report in reports) or any(_is_limited(text) for text in refusals):
            return ""
        if not was_open:
            await self.links.drop(account, secret)
        return refusals[0] if refusals else snapshot.problem or "no broker of the cluster answers"

    async def _logout(self, visit: Visit) -> str:
        key = visit.request.cookies.get(COOKIE, "")
        visitor = self.sessions.find(key)
        self.sessions.close(key)
        if visitor is not None and not self.sessions.is_used(visitor.account, visitor.secret):
            await self.links.drop(visitor.account, visitor.secret)
        return "/login"

    # one request

    async def visit(self, request: Request, *, live: bool = False) -> Visit | Response:
        """Returns who asks over which link, or the answer that sends them to sign in."""
        key = request.cookies.get(COOKIE, "")
        await self.links.open.watch.fresh()
        visitor = self.sessions.find(key) if self.links.is_controlled else None
        if self.links.is_controlled and visitor is None:
            if live:
                return PlainTextResponse("sign in first\n", status_code=401)
            target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return RedirectResponse("/login?" + urlencode({"next": target}), status_code=303)
        key = key or self.sessions.new_key()
        link = await self.links.of(visitor.account, visitor.secret) if visitor is not None else self.links.open
        visit = Visit(
            request, self, link, visitor.account if visitor is not None else "", self.sessions.token(key),
            is_loopback(_peer(request)), await link.watch.fresh(),
        )  # fmt: skip
        request.state.key = key
        return visit

    def _with_cookie(self, visit: Visit, response: Response) -> Response:
        if not visit.request.cookies.get(COOKIE):
            _set_cookie(response, visit.request.state.key)
        return response

    # answers

    def _values(self, visit: Visit, values: Mapping[str, Any]) -> dict[str, Any]:
        act = self.journal.find(visit.number("done", 0, 0, 2**31))
        tones: dict[str, int] = {}
        for group in visit.snapshot.groups:
            tones[group.tone] = tones.get(group.tone, 0) + 1
        return {
            "visit": visit, "snapshot": visit.snapshot, "watch": visit.link.watch, "now_ms": visit.now_ms,
            "token": visit.token, "theme": _theme(visit.request), "version": __version__, "tones": tones,
            "path": visit.request.url.path.removeprefix("/live"), "done": act, "url": visit.url,
            "query": visit.request.url.query, "controlled": self.links.is_controlled,
            "cluster_name": ", ".join(visit.snapshot.clusters) or "no cluster",
            **values,
        }  # fmt: skip

    def page_html(self, visit: Visit, template: str, values: Mapping[str, Any]) -> bytes:
        html = self.templates.get_template(template).render(self._values(visit, values))
        return html.encode("utf-8", "replace")

    def render(self, visit: Visit, template: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
        return HTMLResponse(self.page_html(visit, template, values), status_code=status)

    def _trouble(self, visit: Visit, error: TandemError) -> Response:
        status = 404 if isinstance(error, NoRoute) else 400 if isinstance(error, ClientError) else 502
        title = "Not found" if status == 404 else "Not done" if status == 400 else "The cluster did not answer that"
        return self.render(visit, "trouble.html", _told(title, _sentence(error)), status=status)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        visit = await self.visit(request)
        if isinstance(visit, Response):
            return visit
        text = f"There is no page {request.url.path[:200]!r}; the pages are listed at the left."
        return self.render(
            visit, "trouble.html", _told("No such page", text), status=getattr(error, "status_code", 404)
        )


class _Guard:
    """Refuses foreign host names and puts the headers on every answer."""

    def __init__(self, app: Any, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        is_static = scope["path"].startswith("/static/")

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                for name, value in HEADERS.items():
                    if name.encode() not in present:
                        text = "max-age=3600" if is_static and name == "cache-control" else value
                        message["headers"].append((name.encode(), text.encode()))
            await send(message)

        if not host_is_ours(headers.get("host", ""), self._console.listen_host):
            refusal = PlainTextResponse(
                f"the Host header {printable(headers.get('host', ''))[:100]!r} is not this console's: open it by its "
                "address, or as localhost\n",
                status_code=421,
            )
            await refusal(scope, receive, with_headers)
            return
        if len(scope["query_string"]) + len(scope["path"]) > URL_MAX:
            refusal = PlainTextResponse(f"the address has more than {URL_MAX} characters\n", status_code=414)
            await refusal(scope, receive, with_headers)
            return
        try:
            await self._app(scope, receive, with_headers)
        except (ConnectionResetError, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("a request failed path=%r", scope["path"][:200])
            with contextlib.suppress(RuntimeError):
                text = "The console has a fault; its log has the details. Reload, or go back.\n"
                await PlainTextResponse(text, status_code=500)(scope, receive, with_headers)


@functools.cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tandemq.console"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, auto_reload=False,  # an upgrade on disk does not mix with the code that runs
    )  # fmt: skip
    environment.filters.update(
        count=texts.count, size=texts.size, rate=texts.rate, duration=texts.duration, iso=texts.iso,
        printable=lambda value: printable(str(value)), lines=lambda value: printable_lines(str(value)), segment=segment,
        pattern=pattern, release=version_text,
    )  # fmt: skip
    environment.globals.update(
        clock=texts.clock, distance=texts.distance, percent=percent, line_path=line_path, plural=texts.plural,
        status=markup.status, when=markup.when,
    )  # fmt: skip
    return environment


def _live_blocks(template: jinja2.Template, without: jinja2.Template | None = None) -> dict[str, Any]:
    """Returns the blocks that are kept live, except those that another template has its own of."""
    others = without.blocks if without is not None else {}
    return {name: block for name, block in template.blocks.items() if name.startswith("live_") and name not in others}


def _is_limited(refusal: str) -> bool:
    return re.search(r"has no [\w ]*permission|no permission to access", refusal, re.IGNORECASE) is not None


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


def _told(title: str, text: str) -> dict[str, Any]:
    return {"title": title, "text": text}


def _sentence(error: TandemError) -> str:
    if isinstance(error, ReplyError):
        return f"The broker answered: {error.remark or error}"
    if isinstance(error, RemotingError):
        return f"{error}. The rest of the console works; try again when the node is back."
    return str(error)


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _theme(request: Request) -> str:
    given = request.cookies.get("theme", "")
    return given if given in ("light", "dark") else ""


def _local(target: str) -> str:
    """Returns where to go after signing in: a path of ours, never another site."""
    fine = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if fine else "/cluster"


def _set_cookie(response: Response, key: str) -> None:
    response.set_cookie(COOKIE, key, httponly=True, samesite="strict", path="/")
