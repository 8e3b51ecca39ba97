"""A pair's core without broker, node or network: what the tests of its parts share.

`brokers` answer by address: a mapping is their HA info, an exception what asking them raises.
"""

import asyncio
import dataclasses
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tandemq.broker.config import BrokerRole
from tandemq.broker.pair.reign import View
from tandemq.broker.write_gate import WriteGate
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.codec.ha_register import Member, Register
from tandemq.errors import ConnectFailed
from tandemq.replication.epochs import ReplicaRecord
from tandemq.sim.clock import ManualClock

HERE = "10.0.0.1:10911"
OTHER = "10.0.0.2:10911"
GROUP = "DefaultCluster/broker-a"


def register_of(
    *, holder: str = f"{OTHER}#b", epoch: int = 3, others: tuple[Member, ...] = (), **rest: Any
) -> Register:
    """Returns the register of a pair whose other replica reigns, and of `others`."""
    members = (Member(f"{HERE}#a", HERE, 1), Member(f"{OTHER}#b", OTHER, 0), *others)
    return Register(
        group_id="g", epoch=epoch, epoch_id="e", holder=holder, revision=1, members=members,
        in_sync=(f"{HERE}#a", f"{OTHER}#b"), **rest,
    )  # fmt: skip


class Network:
    """Answers of other brokers; `told` are the commands they got."""

    def __init__(self) -> None:
        self.brokers: dict[str, Mapping[str, str] | Exception] = {}
        self.replies: dict[int, Command | Exception] = {}
        self.told: list[tuple[str, Command]] = []

    async def invoke(self, address: str, command: Command, timeout: float = 0) -> Command:
        self.told.append((address, command))
        if command.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            found = self.brokers.get(address, ConnectFailed(f"{address} refuses the connection"))
            if isinstance(found, Exception):
                raise found
            return Command(ResponseCode.SUCCESS, dict(found))
        reply = self.replies.get(command.code, Command(ResponseCode.SUCCESS))
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass
class FakeMaster:
    """A master's shell; `orders` are the words it was told to end its reign with."""

    state: Any = field(default_factory=lambda: SimpleNamespace(phase=None))
    orders: list[str] = field(default_factory=list)
    allowed: list[bool] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def order(self, epoch: int, why: str) -> None:
        self.orders.append(why)

    def allow(self, group_gone: bool = False) -> None:
        self.allowed.append(group_gone)

    def forget(self, replica: str, *, accept_loss: bool) -> str:
        self.forgotten.append(replica)
        return ""


@dataclass
class FakeSlave:
    """A slave's shell: where it is connected, and how often it was told to look elsewhere."""

    place: Any = None
    state: Any = None
    classic: Any = None
    reconnected: int = 0
    looked: int = 0

    def reconnect(self) -> None:
        self.reconnected += 1

    def look_again(self) -> None:
        self.looked += 1


class FakeNode:
    """A replica's node in any state; `did` are the roles it was told to play."""

    group = GROUP

    def __init__(self) -> None:
        self.record = ReplicaRecord(replica=f"{HERE}#a")
        self.master: FakeMaster | None = None
        self.slave: FakeSlave | None = None
        self.is_open = self.is_following = self.is_holder = False
        self.phase = "asking"
        self.ha_port = 0
        self.provisional = False
        self.waiting_for: list[str] = []
        self.replicas: list[Any] = []
        self.counted: list[str] = []
        self.did: list[str] = []
        self.opens = True

    @property
    def register(self) -> Register | None:
        return self.record.register

    def note(self, **changes: Any) -> None:
        """Changes what the replica remembers."""
        self.record = dataclasses.replace(self.record, **changes)

    def status(self) -> Any:
        return SimpleNamespace(
            replicas=self.replicas, waiting_for=self.waiting_for, provisional=self.provisional, opened_without=[],
            role="master" if self.master is not None else "slave", end=700, master="", error="",
        )  # fmt: skip

    def count(self, event: str) -> None:
        self.counted.append(event)

    def member_addresses(self) -> list[str]:
        return [OTHER]

    async def be_master(self, *place: Any, ask: frozenset[str], **terms: Any) -> None:
        self.did.append("master")
        self.master, self.slave, self.is_open, self.is_following = FakeMaster(), None, self.opens, False

    async def be_slave(self, find: Any, survey: Any, **place: Any) -> None:
        self.did.append("slave")
        self.master, self.slave, self.is_open = None, FakeSlave(), False

    async def leave_role(self, clean: bool = True) -> None:
        self.did.append("leave")

    async def drained(self, seconds: float) -> None:
        self.did.append("drained")

    def remember_role(self, role: str) -> None:
        self.did.append(f"remember {role}")


class FakeBroker:
    """A broker's roles and gates, without anything behind them; `did` are its changes in order."""

    address = HERE
    ha_port = 10912
    is_started = True

    def __init__(self, role: BrokerRole, network: Network) -> None:
        self.role = role
        self.clock = ManualClock()
        self.did: list[str] = []
        self.client = self.asking_client = self.peer_client = network
        self.store = SimpleNamespace(appended=700, flushed=700, health=SimpleNamespace(writable=True, reason=""))
        self.writer = SimpleNamespace(
            gate=WriteGate(), refusal=None, level=SimpleNamespace(copies=2), drained=self._drained
        )
        self.offsets = SimpleNamespace(journal=None)
        self.forwarder = SimpleNamespace(expect_hand_over=lambda: None, changed=lambda: None)
        self.registration = SimpleNamespace(
            is_held=False, is_resting=False, identity=SimpleNamespace(ha_address="10.0.0.1:10912"),
            release=self._note("release"), announce=self._note("announce"), resume=self._note("resume"),
            start=self._note("start"),
        )  # fmt: skip
        self.live = SimpleNamespace(
            broker=SimpleNamespace(broker_id=1, observer=False, broker_name="broker-a", namesrv_addresses=()),
            replication=SimpleNamespace(
                ha_master_address="", open_without_replicas=False, rejoin_wait_ms=1000, lease_seconds=2.0,
                default_level=lambda is_sync: None,
            ),
            remoting=SimpleNamespace(bind_address="127.0.0.1"),
        )  # fmt: skip

    @property
    def is_master(self) -> bool:
        return self.role is not BrokerRole.SLAVE

    def _note(self, what: str) -> Any:
        return lambda: self.did.append(what)

    async def _drained(self, seconds: float) -> None:
        self.did.append("answered")

    def allow_writes(self, *, services: bool = True) -> None:
        self.did.append("allow writes")

    async def forbid_writes(self, reason: str) -> None:
        self.did.append("forbid writes")

    async def rest_services(self) -> None:
        self.did.append("rest services")

    def assume_role(self, role: BrokerRole, broker_id: int) -> None:
        self.role = role
        self.did.append(f"{role.value} {broker_id}")

    async def change_role(self, role: BrokerRole, broker_id: int) -> None:
        self.assume_role(role, broker_id)

    async def take_role(self, role: BrokerRole, broker_id: int) -> None:
        self.assume_role(role, broker_id)


class FakeCore:
    """`PairCore` with fakes for its parts, and tasks that a test may await by `settle`."""

    def __init__(self, role: BrokerRole = BrokerRole.SLAVE) -> None:
        self.network = Network()
        self.broker = FakeBroker(role, self.network)
        self.live = self.broker.live
        self.node = FakeNode()
        self.view = View()
        self.names: dict[int, str] = {}
        self.book = SimpleNamespace(addresses=[OTHER], note=lambda addresses: None)
        self.lookout = SimpleNamespace(look=self._look, addresses=self._addresses, free_id=self._free_id)
        self.follower = SimpleNamespace(start=lambda: None, stop=self._nothing, look_again=lambda: None)
        self.server = SimpleNamespace(is_open=False, changed=lambda: None, told=self._told, wait=None)
        self.tables = SimpleNamespace(true_at=0)
        self.changing = asyncio.Lock()
        self.slave_id = 1
        self.is_starting = False
        self.waits: Any = None
        self.group_exists = False
        self.homeless = self.predecessor = ""
        self.failover: Any = None
        self.tasks: dict[str, asyncio.Task[Any]] = {}

    async def _look(self, seconds: float) -> View:
        return self.view

    async def _addresses(self) -> dict[int, str]:
        return self.names

    async def _free_id(self) -> int:
        return 7

    async def _nothing(self) -> None: ...

    async def _told(self, seconds: float, *, stopping: bool) -> None: ...

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        self.tasks[name] = asyncio.get_running_loop().create_task(work, name=name)
        return self.tasks[name]

    async def settle(self) -> None:
        """Lets everything end that was begun."""
        while pending := [task for task in self.tasks.values() if not task.done()]:
            await asyncio.wait(pending)
