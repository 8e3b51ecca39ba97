"""A model of etcd, and of the way to it: what production's own client speaks to in the simulator.

`EtcdModel` is the cluster as one: keys with revisions, transactions that compare one, leases, watches, compaction, and
a leader that may change.  It is linearizable, as etcd is; what goes wrong lies between it and its clients
(`EtcdNetwork`): an endpoint that is down or hangs, a node that is cut off from one or all of them, requests that are
carried out late and answers that never come, so that their effect may or may not have happened.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import msgspec

from tandemq.coordination.endpoints import Endpoint, Place
from tandemq.coordination.etcd import EtcdClient
from tandemq.coordination.http import Answer, ConnectionBroken, HttpConnection
from tandemq.sim.loop import SimLoop
from tandemq.sim.network import EventQueue

ENDPOINTS = ("e0", "e1", "e2")
PLACE = Place(tuple(Endpoint(name, 2379) for name in ENDPOINTS), False)
LATE_MAX = 0.3
"""Seconds by which etcd may end a lease later than it promised; never earlier."""
NOT_FOUND, UNAVAILABLE = 5, 14


@dataclass(slots=True)
class Lease:
    ttl: float
    ends_at: float


@dataclass(slots=True, eq=False)
class Watch:
    """One client's stream of changes."""

    start: str
    stop: str
    tell: Callable[[dict[str, Any]], None]
    endpoint: str
    node: str


class EtcdModel:
    """The keys of all groups, changed one request at a time."""

    def __init__(self, events: EventQueue, random: Random) -> None:
        self._events = events
        self._random = random
        self.cluster = "77"
        self.revision = 1
        self.keys: dict[str, tuple[bytes, int, int]] = {}
        """key -> value, revision of its last change, lease"""
        self.leases: dict[int, Lease] = {}
        self.watches: list[Watch] = []
        self._log: list[tuple[int, dict[str, Any]]] = []
        self.compacted = 0
        self._next_lease = 1000
        self.no_leader_until = 0.0

    @property
    def has_leader(self) -> bool:
        return self._events.now >= self.no_leader_until

    def answer(self, path: str, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Carries a request out; the status and what is said."""
        if not self.has_leader:
            return 503, {"error": "etcdserver: no leader", "code": UNAVAILABLE}
        if path == "/v3/kv/range":
            return 200, {"header": self._header(), "kvs": [self._kv(key) for key in self._keys_of(asked)]}
        if path == "/v3/kv/txn":
            return self._txn(asked)
        if path == "/v3/lease/grant":
            self._next_lease += 1
            self._grant(self._next_lease, float(asked["TTL"]))
            return 200, {"header": self._header(), "ID": str(self._next_lease), "TTL": asked["TTL"]}
        lease = int(asked["ID"])
        if path == "/v3/lease/keepalive":
            held = self.leases.get(lease)
            if held is not None:
                held.ends_at = self._events.now + held.ttl
            return 200, {"result": {"ID": str(lease), **({"TTL": str(int(held.ttl))} if held is not None else {})}}
        assert path == "/v3/lease/revoke", path
        if lease not in self.leases:
            return 404, {"error": "etcdserver: requested lease not found", "code": NOT_FOUND}
        self._end(lease)
        return 200, {"header": self._header()}

    def _txn(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        compared = asked["compare"][0]
        key = _text(compared["key"])
        held = self.keys[key][1] if key in self.keys else 0
        if held != int(compared["mod_revision"]):
            found = [self._kv(key)] if key in self.keys else []
            return 200, {"header": self._header(), "responses": [{"response_range": {"kvs": found}}]}
        puts = [one["request_put"] for one in asked["success"]]
        if any(int(put.get("lease", 0)) and int(put["lease"]) not in self.leases for put in puts):
            return 404, {"error": "etcdserver: requested lease not found", "code": NOT_FOUND}
        self.revision += 1
        for put in puts:
            self.keys[_text(put["key"])] = b64decode(put["value"]), self.revision, int(put.get("lease", 0))
            self._changed({"kv": self._kv(_text(put["key"]))})
        return 200, {"header": self._header(), "succeeded": True}

    def _keys_of(self, asked: dict[str, Any]) -> list[str]:
        start, stop = _text(asked["key"]), _text(asked.get("range_end", ""))
        return sorted(key for key in self.keys if key == start or start <= key < stop)

    def _kv(self, key: str) -> dict[str, Any]:
        data, revision, lease = self.keys[key]
        return {"key": _b64(key.encode()), "value": _b64(data), "mod_revision": str(revision), "lease": str(lease)}

    def _header(self) -> dict[str, str]:
        return {"cluster_id": self.cluster, "revision": str(self.revision)}

    # --- leases -----------------------------------------------------------------------------------------------------

    def _grant(self, lease: int, ttl: float) -> None:
        self.leases[lease] = Lease(ttl, self._events.now + ttl)
        self._look_later(lease)

    def _look_later(self, lease: int) -> None:
        late = self._random.uniform(0.0, LATE_MAX)

        def look() -> None:
            held = self.leases.get(lease)
            if held is None:
                return
            if self._events.now >= held.ends_at and self.has_leader:
                self._end(lease)
            else:
                self._look_later(lease)

        self._events.at(max(self.leases[lease].ends_at, self.no_leader_until) + late, look)

    def _end(self, lease: int) -> None:
        del self.leases[lease]
        gone = [key for key, held in sorted(self.keys.items()) if held[2] == lease]
        if gone:
            self.revision += 1
        for key in gone:
            del self.keys[key]
            kv = {"key": _b64(key.encode()), "mod_revision": str(self.revision)}
            self._changed({"type": "DELETE", "kv": kv})

    def change_leader(self, seconds: float) -> None:
        """Nobody is answered for a while; the new leader gives every lease its whole time again."""
        self.no_leader_until = until = self._events.now + seconds
        for held in self.leases.values():
            held.ends_at = until + held.ttl

    # --- watches ----------------------------------------------------------------------------------------------------

    def watch(self, watch: Watch, revision: int) -> None:
        """Tells what changed from `revision` on, and what changes; a revision that was compacted ends it at once."""
        if revision <= self.compacted:
            watch.tell({"result": {"canceled": True, "compact_revision": str(self.compacted + 1)}})
            return
        watch.tell({"result": {"created": True, "header": self._header()}})
        missed = [event for at, event in self._log if at >= revision]
        if missed:
            watch.tell({"result": {"events": missed}})
        self.watches.append(watch)

    def _changed(self, event: dict[str, Any]) -> None:
        self._log.append((self.revision, event))
        for watch in self.watches:
            watch.tell({"result": {"events": [event]}})

    def compact(self) -> None:
        """Forgets all changes up to now: a watch that comes back later has missed them."""
        self.compacted = self.revision
        self._log.clear()

    def wipe(self) -> None:
        """etcd is made anew: another cluster, no keys."""
        self.cluster = str(int(self.cluster) + 1)
        self.revision = 1
        self.keys.clear()
        self.leases.clear()
        self.compact()
        self.compacted = 0


@dataclass(slots=True)
class EtcdNetwork:
    """The way from nodes to endpoints and back."""

    model: EtcdModel
    events: EventQueue
    random: Random
    blocked: set[tuple[str, str]] = field(default_factory=set)
    """(node, endpoint): nothing passes."""
    down: set[str] = field(default_factory=set)
    """Endpoints whose process is dead: they refuse."""
    hanging: set[str] = field(default_factory=set)
    """Endpoints that take requests and do not answer."""
    lost: float = 0.0
    """Probability that a request, or the answer to one that was carried out, never arrives."""
    late: float = 0.0
    """Probability that a request is carried out long after it was sent."""

    @property
    def is_up(self) -> bool:
        """Whether a majority of the endpoints lives."""
        return len(self.down | self.hanging) < 2

    def passes(self, node: str, endpoint: str) -> bool:
        return (node, endpoint) not in self.blocked

    def delay(self) -> float:
        return self.random.uniform(0.0002, 0.003)

    def request(
        self, node: str, endpoint: str, path: str, asked: dict[str, Any], done: Callable[[Answer], None]
    ) -> None:
        """Sends a request; `done` when its answer comes, if it does."""
        random = self.random
        delay = self.delay()
        if random.random() < self.late:
            delay += random.uniform(0.1, 2.5)
        lost = random.random()

        def arrive() -> None:
            if endpoint in self.down or endpoint in self.hanging or not self.is_up:
                return
            if lost < self.lost / 2:
                return
            if not self.passes(node, endpoint):
                # What TCP holds arrives when the way is free again, or never.
                if random.random() < 0.5:
                    self.events.after(random.uniform(0.1, 0.5), arrive)
                return
            status, said = self.model.answer(path, asked)
            if lost < self.lost:
                return
            answer = Answer(status, msgspec.json.encode(said))
            self.events.after(self.delay(), lambda: done(answer) if self.passes(node, endpoint) else None)

        self.events.after(delay, arrive)

    def open_watch(self, node: str, endpoint: str, asked: dict[str, Any], tell: Callable[[bytes | None], None]) -> None:
        """`tell`: each line as it comes; None when the connection breaks."""
        events = self.events
        request = asked["create_request"]
        deaf = False

        def say(found: dict[str, Any]) -> None:
            nonlocal deaf
            if not self.passes(node, endpoint) or endpoint in self.hanging:
                if not deaf:  # the connection hangs, and breaks some time later
                    events.after(self.random.uniform(0.3, 2.0), lambda: tell(None))
                deaf = True
            if not deaf:
                events.after(0.0 if self.lost == 0 else self.delay(), lambda: tell(msgspec.json.encode(found)))

        watch = Watch(_text(request["key"]), _text(request["range_end"]), say, endpoint, node)

        def arrive() -> None:
            if endpoint in self.down or not self.passes(node, endpoint) or not self.is_up:
                tell(None)
            else:
                self.model.watch(watch, int(request["start_revision"]))

        events.after(self.delay(), arrive)

    def stop(self, endpoint: str) -> None:
        """An endpoint dies, and every watch at it."""
        self.down.add(endpoint)
        ended = [watch for watch in self.model.watches if watch.endpoint == endpoint]
        self.model.watches = [watch for watch in self.model.watches if watch.endpoint != endpoint]
        for watch in ended:
            watch.tell({"result": {"canceled": True, "cancel_reason": "the member stops"}})

    def forget(self, node: str) -> None:
        """A node has died: nobody listens to its watches any more."""
        self.model.watches = [watch for watch in self.model.watches if watch.node != node]

    def heal(self) -> None:
        self.blocked.clear()
        self.down.clear()
        self.hanging.clear()
        self.lost = self.late = 0.0


class SimConnection:
    """What production's client takes for an HTTP connection."""

    def __init__(self, network: EtcdNetwork, node: str, endpoint: str) -> None:
        self._network = network
        self._node = node
        self._endpoint = endpoint
        self.is_reusable = True
        self.was_used = False

    def close(self) -> None:
        self.is_reusable = False

    async def post(self, path: str, body: bytes, token: str = "") -> Answer:
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(answer: Answer) -> None:
            if not waiter.done():
                waiter.set_result(answer)

        self._network.request(self._node, self._endpoint, path, msgspec.json.decode(body), done)
        answer = await waiter
        self.was_used = True
        return answer

    async def stream(self, path: str, body: bytes, token: str = "") -> AsyncGenerator[bytes, None]:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._network.open_watch(self._node, self._endpoint, msgspec.json.decode(body), lines.put_nowait)
        while (line := await lines.get()) is not None:
            yield line
        raise ConnectionBroken(f"{self._endpoint}: the connection was closed")


class SimEtcdClient(EtcdClient):
    """Production's client, whose connections are simulated."""

    def __init__(self, network: EtcdNetwork, node: str, timeout: float) -> None:
        super().__init__(PLACE, timeout=timeout)
        self._network = network
        self._node = node

    async def _open(self, endpoint: Endpoint) -> HttpConnection:
        network, loop = self._network, asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        await asyncio.sleep(network.delay())
        if endpoint.host in network.down:
            raise ConnectionRefusedError(111, "Connection refused")
        if not network.passes(self._node, endpoint.host):
            await loop.create_future()
        return cast("HttpConnection", SimConnection(network, self._node, endpoint.host))


def _text(data: str) -> str:
    return b64decode(data).decode()


def _b64(data: bytes) -> str:
    return b64encode(data).decode()
