"""What the parts of a pair share: the replica's node, how the group is asked, and what this broker is in it."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tandemq.broker.pair.host import PairHost
from tandemq.broker.pair.lookout import Lookout
from tandemq.broker.pair.peer_book import PeerBook
from tandemq.broker.pair.reign import RoleVerdict
from tandemq.broker.pair.tables import BrokerTables
from tandemq.replication.metadata import MetadataFollower, MetadataServer
from tandemq.replication.node import ReplicaNode

if TYPE_CHECKING:
    from tandemq.broker.failover.failover import Failover

Outcome = TypeVar("Outcome")

ASK_SECONDS: Final = 3.0
"""For another broker of the group to answer an order or an announcement."""
LOOK_SECONDS: Final = 1.0
"""For every answer to a look around, so that a dead broker delays nobody for longer."""


class PairCore:
    """State of more than one part. Its owner sets `node`, `book`, `lookout` and `follower` when it starts."""

    node: ReplicaNode
    book: PeerBook
    lookout: Lookout
    follower: MetadataFollower

    def __init__(self, broker: PairHost, tables: BrokerTables) -> None:
        self.broker = broker
        self.live = broker.live
        self.tables = tables
        self.server = MetadataServer(tables)
        """Tells those who follow this broker what changed in its tables."""
        self.slave_id = broker.live.broker.broker_id
        """The id to take as a slave; 0 when it has to be found."""
        self.is_starting = True
        self.changing = asyncio.Lock()
        """Held by whoever changes the role."""
        self.waits: RoleVerdict | None = None
        """Set while this node has a master's role but waits for word from its group before it plays it."""
        self.group_exists = False
        """Somebody of this name has a register: a store without one does not begin a group of its own."""
        self.homeless = ""
        """Why this broker never reigns: its register lives with a coordinator that it was not given."""
        self.predecessor = ""
        """The replica that has just handed over to this node and is about to follow it."""
        self.failover: Failover | None = None
        """Of a group with a coordinator; None: a person promotes."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Outcome], name: str) -> "asyncio.Task[Outcome]":
        """Runs something that ends with this broker."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()
