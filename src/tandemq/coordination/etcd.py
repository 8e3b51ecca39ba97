"""etcd v3 over its JSON gateway, on the event loop.

One call goes to the endpoint that answered last; one that hangs or refuses is passed over after its own deadline and
tried last from then on.  Every call made here may be repeated: reads, lease calls, and swaps, which compare the
revision that was read.  A swap whose outcome is unknown is repeated as it was: it happens at most once, and the answer
to the repeat tells what the key holds, so whoever wrote it is found out by reading.
"""

import asyncio
import contextlib
import logging
import ssl
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tandemq.coordination.endpoints import Endpoint, Place
from tandemq.coordination.http import Answer, ConnectionBroken, HttpConnection
from tandemq.errors import CoordinatorError

log = logging.getLogger(__name__)

IDLE_MAX: Final = 4
"""Connections kept for later at each endpoint."""
UNAUTHENTICATED: Final = 16
"""gRPC's code for a token that is missing or has expired."""
AUTHENTICATE_SECONDS: Final = 10.0
"""For a token, while those who wait for it come and go."""


class WatchLost(CoordinatorError):
    """Events may have been missed: read again, then watch from there."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a key holds; `revision` is that of its last change, and what a swap compares."""

    key: str
    data: bytes
    revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Keys as they were at one revision of the whole store."""

    values: Mapping[str, Value]
    revision: int
    cluster: str
    """Identity of the etcd cluster: another one after it was made anew or restored."""


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    data: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch; `data` None: the key is gone, deleted or with its lease."""

    key: str
    data: bytes | None
    revision: int
    lease: int = 0


class EtcdClient:
    def __init__(
        self, place: Place, *, tls: ssl.SSLContext | None = None, user: str = "", password: str = "", timeout: float
    ) -> None:
        """`timeout`: seconds that one endpoint may take before the next is asked; a call ends after twice as long."""
        self.place = place
        self.timeout = timeout
        self._tls = tls
        self._user = user
        self._password = password
        self._token = ""
        self._authenticating: dict[Endpoint, asyncio.Task[None]] = {}
        self._order = list(place.endpoints)
        self._idle: dict[Endpoint, list[HttpConnection]] = {endpoint: [] for endpoint in place.endpoints}
        self.trouble = ""
        """Why the last call failed; empty after one that was answered."""
        self.cluster = ""

    def close(self) -> None:
        for task in self._authenticating.values():
            task.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
            idle.clear()

    # --- keys -------------------------------------------------------------------------------------------------------

    async def read(self, prefix: str) -> Snapshot:
        """Returns all keys that begin with `prefix`, as of now: no endpoint answers from an old copy."""
        asked = {"key": _b64(prefix), "range_end": _b64(_end_of(prefix))}
        answer = await self._call("/v3/kv/range", asked)
        values = [_value(one) for one in answer.get("kvs", ())]
        header = answer.get("header", {})
        self.cluster = str(header.get("cluster_id", ""))
        return Snapshot({one.key: one for one in values}, int(header.get("revision", 0)), self.cluster)

    async def swap(
        self, key: str, revision: int, puts: Iterable[Put], *, deletes: Iterable[str] = ()
    ) -> tuple[bool, Value | None, int]:
        """Writes if `key` still has this revision (0: does not exist).  Returns whether, what it holds, and when.

        Not written also means: what this call wanted may have been written by an earlier try of it.
        """
        operations: list[Mapping[str, Any]] = [{"request_put": _put(one)} for one in puts]
        operations += [{"request_delete_range": {"key": _b64(one)}} for one in deletes]
        asked = {
            "compare": [{"key": _b64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}],
            "success": operations,
            "failure": [{"request_range": {"key": _b64(key)}}],
        }
        answer = await self._call("/v3/kv/txn", asked)
        at = int(answer.get("header", {}).get("revision", 0))
        if answer.get("succeeded"):
            return True, None, at
        found = answer.get("responses", [{}])[0].get("response_range", {}).get("kvs", ())
        return False, _value(found[0]) if found else None, at

    # --- leases -----------------------------------------------------------------------------------------------------

    async def grant(self, seconds: int) -> int:
        """Returns a new lease."""
        return int((await self._call("/v3/lease/grant", {"TTL": str(seconds), "ID": "0"}))["ID"])

    async def renew(self, lease: int) -> bool:
        """Returns whether the lease lives, for its full time from now on."""
        answer = await self._call("/v3/lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def revoke(self, lease: int) -> None:
        """Ends a lease and removes its keys; one that has ended already is no error."""
        try:
            await self._call("/v3/lease/revoke", {"ID": str(lease)})
        except Refused as error:
            if error.code != NOT_FOUND:
                raise

    async def time_left(self, lease: int) -> float:
        """Returns the seconds a lease still lives; below 0: it has ended."""
        return float((await self._call("/v3/lease/timetolive", {"ID": str(lease)})).get("TTL", -1))

    # --- watching ---------------------------------------------------------------------------------------------------

    async def watch(self, prefix: str, revision: int) -> AsyncIterator[list[Change]]:
        """Yields the changes from `revision` on as they come; WatchLost when it ends, whatever the reason."""
        body = msgspec.json.encode(
            {
                "create_request": {
                    "key": _b64(prefix),
                    "range_end": _b64(_end_of(prefix)),
                    "start_revision": str(revision),
                }
            }
        )
        if self._user and not self._token:
            await self._authenticate(self._order[0])
        endpoint = self._order[0]
        try:
            async with asyncio.timeout(self.timeout):
                connection = await self._open(endpoint)
        except (OSError, TimeoutError) as error:
            self._pass_over(endpoint)
            raise WatchLost(f"{endpoint}: {error or 'timed out'}") from error
        try:
            async with contextlib.aclosing(connection.stream("/v3/watch", body, self._token)) as lines:
                async for line in lines:
                    yield _changes(line)
        except ConnectionBroken as error:
            raise WatchLost(str(error)) from error
        finally:
            connection.close()
        self._token = ""  # it may have been refused for being too old
        raise WatchLost(f"{endpoint} ended the watch")

    # --- calls ------------------------------------------------------------------------------------------------------

    async def _call(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Asks one endpoint after the other; CoordinatorError with what each one said if none answers."""
        data = msgspec.json.encode(body)
        troubles: list[str] = []
        deadline = asyncio.get_running_loop().time() + 2 * self.timeout
        for endpoint in list(self._order):
            try:
                now = asyncio.get_running_loop().time()
                async with asyncio.timeout(min(self.timeout, max(0.0, deadline - now))):
                    answer = await self._ask(endpoint, path, data)
            except Refused as error:
                if not error.is_passing:
                    raise
                troubles.append(f"{endpoint}: {error}")
            except (OSError, ConnectionBroken, TimeoutError) as error:
                text = str(error) or "did not answer in time"
                troubles.append(text if str(endpoint) in text else f"{endpoint}: {text}")
            else:
                if endpoint is not self._order[0]:
                    self._order.remove(endpoint)
                    self._order.insert(0, endpoint)
                self.trouble = ""
                return answer
            self._pass_over(endpoint)
        self.trouble = "; ".join(troubles)
        raise CoordinatorError(f"no endpoint of {self.place} answers: {self.trouble}")

    def _pass_over(self, endpoint: Endpoint) -> None:
        self._order.remove(endpoint)
        self._order.append(endpoint)
        for connection in self._idle[endpoint]:
            connection.close()
        self._idle[endpoint].clear()

    async def _ask(self, endpoint: Endpoint, path: str, data: bytes) -> dict[str, Any]:
        if self._user and not self._token:
            await self._authenticate(endpoint)
        token = self._token
        try:
            return _checked(await self._post(endpoint, path, data, token))
        except Refused as error:
            if error.code != UNAUTHENTICATED or not self._user:
                raise
        if self._token == token:  # nobody else has got a new one meanwhile
            await self._authenticate(endpoint)
        return _checked(await self._post(endpoint, path, data, self._token))

    async def _authenticate(self, endpoint: Endpoint) -> None:
        """Gets a token, once for all who ask at the same time, and to the end although a call has given up meanwhile.

        etcd spends a fifth of a second and more of processor time on a password: calls that each gave it again, and
        gave up before the answer, kept it busy for ever.
        """
        task = self._authenticating.get(endpoint)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self._new_token(endpoint), name="authenticate at etcd")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more
            self._authenticating[endpoint] = task
        await asyncio.shield(task)

    async def _new_token(self, endpoint: Endpoint) -> None:
        async with asyncio.timeout(AUTHENTICATE_SECONDS):
            await self._log_in(endpoint)

    async def _log_in(self, endpoint: Endpoint) -> None:
        data = msgspec.json.encode({"name": self._user, "password": self._password})
        self._token = str(_checked(await self._post(endpoint, "/v3/auth/authenticate", data, "")).get("token", ""))

    async def _open(self, endpoint: Endpoint) -> HttpConnection:
        return await HttpConnection.open(endpoint, self._tls)

    async def _post(self, endpoint: Endpoint, path: str, data: bytes, token: str) -> Answer:
        idle = self._idle[endpoint]
        connection = idle.pop() if idle else await self._open(endpoint)
        try:
            try:
                answer = await connection.post(path, data, token)
            except ConnectionBroken:
                if not connection.was_used:
                    raise
                connection.close()
                connection = await self._open(endpoint)
                answer = await connection.post(path, data, token)
            if connection.is_reusable and len(idle) < IDLE_MAX:
                idle.append(connection)
                return answer
        except BaseException:
            connection.close()
            raise
        connection.close()
        return answer


NOT_FOUND: Final = 5
PASSING: Final = frozenset({1, 4, 8, 10, 13, 14})
"""Cancelled, too late, exhausted, aborted, internal, unavailable: another endpoint may do better."""


class Refused(CoordinatorError):
    """etcd understood the call and did not carry it out."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_passing(self) -> bool:
        return self.code in PASSING


def _checked(answer: Answer) -> dict[str, Any]:
    try:
        # A streaming call answers with one object per line; the first one is the answer.
        found = msgspec.json.decode(answer.body.partition(b"\n")[0] or b"{}")
    except msgspec.DecodeError as error:
        raise ConnectionBroken(f"status {answer.status} and no JSON") from error
    if not isinstance(found, dict):
        raise ConnectionBroken(f"status {answer.status} and no JSON object")
    trouble = found.get("error")
    if isinstance(trouble, dict):
        raise Refused(int(trouble.get("grpc_code") or trouble.get("code") or 2), str(trouble.get("message", "refused")))
    if answer.status != 200 or trouble is not None:
        raise Refused(int(found.get("code", 2)), str(found.get("message") or trouble or f"status {answer.status}"))
    return found


def _changes(line: bytes) -> list[Change]:
    try:
        found = msgspec.json.decode(line)
        result = found["result"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise WatchLost(f"the watch was refused: {line[:200]!r}") from error
    if result.get("canceled"):
        why = result.get("cancel_reason") or f"compacted at {result.get('compact_revision', '?')}"
        raise WatchLost(f"the watch was ended by etcd: {why}")
    changes = []
    for event in result.get("events", ()):
        value = _value(event["kv"])
        gone = event.get("type") == "DELETE"
        changes.append(Change(value.key, None if gone else value.data, value.revision, value.lease))
    return changes


def _value(found: Mapping[str, Any]) -> Value:
    return Value(
        b64decode(found["key"]).decode(),
        b64decode(found.get("value", "")),
        int(found.get("mod_revision", 0)),
        int(found.get("lease", 0)),
    )


def _put(put: Put) -> dict[str, Any]:
    found: dict[str, Any] = {"key": _b64(put.key), "value": b64encode(put.data).decode()}
    return {**found, "lease": str(put.lease)} if put.lease else found


def _b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _end_of(prefix: str) -> str:
    """Returns the first key after all those that begin with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
