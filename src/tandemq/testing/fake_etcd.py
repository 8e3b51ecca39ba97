"""An etcd of a few lines for unit tests: keys, leases that end when told, watches, and every way to misbehave."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec

HOST = "127.0.0.1"


class FakeEtcd:
    """Speaks the JSON gateway.  `before` and `after` see every call: one may hang, refuse, or cut the connection."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[bytes, int, int]] = {}
        """key -> value, revision, lease"""
        self.revision = 1
        self.leases: set[int] = set()
        self.calls: list[str] = []
        self.cluster = "77"
        self.token = ""
        """What Authorization must say, if anything."""
        self.before: Callable[[str], Any] = lambda path: None
        """Returns "hang", "cut", or an (status, object) to answer with; None: carry it out."""
        self.after: Callable[[str], Any] = lambda path: None
        """The same, when the call was carried out already."""
        self._watches: set[asyncio.Queue[dict[str, Any]]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._next_lease = 1000
        self.held: dict[str, asyncio.Event] = {}
        """Calls of a path wait for its event before they are carried out."""
        self.never = asyncio.Event()

    async def __aenter__(self) -> "FakeEtcd":
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await asyncio.sleep(0)

    def end_lease(self, lease: int) -> None:
        """Ends a lease as if it had run out."""
        self.leases.discard(lease)
        for key in [key for key, held in self.keys.items() if held[2] == lease]:
            self._delete(key)

    def cancel_watches(self, **why: Any) -> None:
        for watch in self._watches:
            watch.put_nowait({"canceled": True, **why})

    # --- serving ----------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                path = line.split()[1].decode()
                headers = {}
                while (line := await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                await self._answer(writer, path, headers, msgspec.json.decode(body))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, path: str, headers: dict[str, str], asked: dict[str, Any]
    ) -> None:
        self.calls.append(path)
        if path in self.held:
            await self.held[path].wait()
        done = self.before(path)
        if (
            done is None
            and self.token
            and path != "/v3/auth/authenticate"
            and headers.get("authorization") != self.token
        ):
            done = 401, {"error": "etcdserver: invalid auth token", "code": 16}
        if done is None and path == "/v3/watch":
            await self._watch(writer, asked["create_request"])
            return
        if done is None:
            found = 200, self._carry_out(path, asked)
            done = self.after(path) or found
        if done == "hang":
            await self.never.wait()
        if done == "cut":
            writer.close()
            raise ConnectionResetError
        status, answer = done
        data = msgspec.json.encode(answer)
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()

    def _carry_out(self, path: str, asked: dict[str, Any]) -> dict[str, Any]:
        if path == "/v3/kv/range":
            start, stop = b64decode(asked["key"]).decode(), b64decode(asked.get("range_end", "")).decode()
            found = [key for key in self.keys if key == start or (stop and start <= key < stop)]
            return {"header": self._header(), "kvs": [self._kv(key) for key in sorted(found)]}
        if path == "/v3/kv/txn":
            return self._txn(asked)
        if path == "/v3/lease/grant":
            self._next_lease += 1
            self.leases.add(self._next_lease)
            return {"header": self._header(), "ID": str(self._next_lease), "TTL": asked["TTL"]}
        lease = int(asked.get("ID", 0))
        if path == "/v3/lease/keepalive":
            result = {"ID": str(lease), "TTL": "2"} if lease in self.leases else {"ID": str(lease)}
            return {"result": result}
        if path == "/v3/lease/timetolive":
            return {"ID": str(lease), "TTL": "2" if lease in self.leases else "-1"}
        if path == "/v3/lease/revoke":
            self.end_lease(lease)
            return {"header": self._header()}
        assert path == "/v3/auth/authenticate"
        return {"token": self.token}

    def _txn(self, asked: dict[str, Any]) -> dict[str, Any]:
        compared = asked["compare"][0]
        key = b64decode(compared["key"]).decode()
        held = self.keys[key][1] if key in self.keys else 0
        if held != int(compared["mod_revision"]):
            kvs = [self._kv(key)] if key in self.keys else []
            return {"header": self._header(), "responses": [{"response_range": {"kvs": kvs}}]}
        self.revision += 1
        for operation in asked["success"]:
            put = operation["request_put"]
            self._put(b64decode(put["key"]).decode(), b64decode(put["value"]), int(put.get("lease", 0)))
        return {"header": self._header(), "succeeded": True}

    def _put(self, key: str, data: bytes, lease: int) -> None:
        self.keys[key] = data, self.revision, lease
        self._tell({"kv": self._kv(key)})

    def put(self, key: str, data: bytes) -> None:
        """Writes as somebody else would."""
        self.revision += 1
        self._put(key, data, 0)

    def _delete(self, key: str) -> None:
        self.revision += 1
        del self.keys[key]
        kv = {"key": b64encode(key.encode()).decode(), "mod_revision": str(self.revision)}
        self._tell({"type": "DELETE", "kv": kv})

    def _tell(self, event: dict[str, Any]) -> None:
        for watch in self._watches:
            watch.put_nowait({"events": [event]})

    def _header(self) -> dict[str, str]:
        return {"revision": str(self.revision), "cluster_id": self.cluster}

    def _kv(self, key: str) -> dict[str, str]:
        data, revision, lease = self.keys[key]
        found = {"key": b64encode(key.encode()).decode(), "value": b64encode(data).decode()}
        return {**found, "mod_revision": str(revision), **({"lease": str(lease)} if lease else {})}

    async def _watch(self, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._watches.add(queue)
        queue.put_nowait({"created": True})
        try:
            while True:
                line = msgspec.json.encode({"result": {"header": self._header(), **await queue.get()}}) + b"\n"
                half = len(line) // 2  # as a network may split it
                for piece in (line[:half], line[half:]):
                    writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    await writer.drain()
        finally:
            self._watches.discard(queue)
