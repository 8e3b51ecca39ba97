"""With access control: strangers see nothing, accounts see and do what the brokers let them."""

import asyncio
import base64
import http.cookiejar
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.security.guarded import Guarded, guarded

from tandemq.client.config import ClientConfig
from tandemq.console.server import ConsoleServer

Story = Callable[["Visitor", str], None]


class Visitor:
    """A browser without scripts: cookies, forms, redirects."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()), urllib.request.ProxyHandler({})
        )

    def open(self, path: str, data: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
        request = urllib.request.Request(self._url + path, data, headers or {})
        try:
            with self._opener.open(request, timeout=20) as answer:
                return answer.status, answer.url, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.url or "", error.read().decode()

    def submit(self, page: str, action: str, **fields: str) -> tuple[int, str, str]:
        """Sends a form of a page with the token that the page holds."""
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.open(page)[2])
        assert found is not None
        return self.open(action, urllib.parse.urlencode({"csrf": found[1], **fields}).encode())

    def sign_in(self, account: str, secret: str) -> tuple[int, str, str]:
        return self.submit("/login", "/login", account=account, secret=secret, next="/topics")


def tell(tmp_path: Path, story: Callable[[Visitor], None], prepare: Callable[[Guarded], Any] | None = None) -> None:
    async def run() -> None:
        async with guarded(tmp_path) as cluster:
            if prepare is not None:
                await prepare(cluster)
            config = ClientConfig(namesrv=cluster.cluster.namesrv_address)
            async with ConsoleServer(config, "127.0.0.1", 0) as server:
                await asyncio.to_thread(story, Visitor(server.url))

    # In a thread of its own: Playwright's loop may be running in this one, from the files before.
    with ThreadPoolExecutor(1) as alone:
        alone.submit(asyncio.run, run()).result()


def test_a_stranger_is_sent_to_sign_in_and_back_to_where_they_wanted(tmp_path: Path) -> None:
    def story(visitor: Visitor) -> None:
        status, url, body = visitor.open("/topics?kind=system")
        assert (status, "/login?next=%2Ftopics%3Fkind%3Dsystem" in url) == (200, True)
        assert "broker-a" not in body
        status, _, body = visitor.sign_in("operator", "wrong")
        assert status == 403
        assert "does not fit" in body
        status, url, body = visitor.sign_in("operator", "secret-of-operator")
        assert (status, url.endswith("/topics")) == (200, True)
        assert "operator" in body
        assert "broker-a" in visitor.open("/cluster")[2]
        status, url, _ = visitor.submit("/cluster", "/logout")
        assert "/login" in url
        assert "/login" in visitor.open("/cluster")[1]

    tell(tmp_path, story)


def test_the_brokers_decide_what_an_account_may_do(tmp_path: Path) -> None:
    def story(visitor: Visitor) -> None:
        visitor.sign_in("worker", "secret-of-worker")
        status, _, body = visitor.open("/replication")
        assert status == 200
        assert "not told to this account" in body
        fields = {"topic": "forbidden", "readQueues": "1", "writeQueues": "1", "read": "1", "write": "1"}
        status, _, body = visitor.submit("/topics/new", "/act/topics/save", **fields)
        assert status == 502
        assert "has no" in body, "the broker's own refusal is shown"
        body = visitor.submit("/messages", "/act/messages/send", topic="orders", body="by hand")[2]
        assert "SEND_OK" in body, "what it may do is done, though it may not read the message as an administrator"

    async def prepare(cluster: Guarded) -> None:
        assert (await cluster.send("operator", "orders")).code == 0

    tell(tmp_path, story, prepare)


def test_the_api_takes_an_account_as_basic_credentials(tmp_path: Path) -> None:
    def story(visitor: Visitor) -> None:
        assert visitor.open("/api/v1/cluster")[0] == 401
        given = base64.b64encode(b"operator:secret-of-operator").decode()
        headers = {"authorization": f"Basic {given}", "content-type": "application/json"}
        status, _, body = visitor.open("/api/v1/cluster", headers=headers)
        assert (status, json.loads(body)["groups"][0]["name"]) == (200, "broker-a")
        topic = {"topic": "by-api", "readQueues": 2, "writeQueues": 2, "read": True, "write": True}
        status, _, body = visitor.open("/api/v1/topics", json.dumps(topic).encode(), headers)
        assert (status, json.loads(body)["act"]["who"]) == (200, "operator")
        status, _, body = visitor.open("/api/v1/topics/by-api", headers=headers)
        assert json.loads(body)["queue_count"] == 2
        wrong = base64.b64encode(b"operator:secret-of-outsider").decode()
        assert visitor.open("/api/v1/cluster", headers={"authorization": f"Basic {wrong}"})[0] == 401

    tell(tmp_path, story)
