"""A simulated node whose broker has tables, and whose master has services: see services.py."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tandemq.broker.new_message import NewMessage
from tandemq.broker.write_gate import WriteRefused
from tandemq.broker.writer import Queues
from tandemq.codec.command import Command
from tandemq.errors import DiskFull, StoreError
from tandemq.model.ack_level import AckLevel
from tandemq.replication.acks import PutStatus
from tandemq.replication.decisions import Opened, SteppedDown
from tandemq.sim.disk import PowerCut
from tandemq.sim.loop_node import LoopNode
from tandemq.sim.node import HOST, SimNode
from tandemq.sim.services import Services, heard_names, service_config
from tandemq.store.message_store import Appended
from tandemq.store.retention import HOUR_MS

Acked = Callable[[PutStatus, str, Appended], None]


class ServingNode(LoopNode):
    """Alive: also the services of a broker, which end with the process."""

    services: Services
    is_nameless = False
    """Whether its record was lost and it has not learned another history yet: nobody can tell what its log is."""
    on_start: "Callable[[ServingNode], None]" = staticmethod(lambda node: None)
    """Told when a process has its services: clients connect."""

    def _open(self) -> None:
        super()._open()
        self.services = Services(self, SimpleNamespace(broker=service_config(), store=self.store_config))
        self.hands.on_cut = self.services.log_was_cut
        self._followed = ""
        self.on_start(self)

    def _take_role(self, *, ordered: bool = False) -> None:
        if self.role == "master":
            self.services.be_candidate()
        super()._take_role(ordered=ordered)

    def _be_slave(self) -> None:
        self.services.be_slave()
        super()._be_slave()

    def master_place(self) -> tuple[str, bool] | None:
        """Returns where to ask for tables, as `MetadataFollower` wants it."""
        if self.slave is None or self.follows is None or not self.links:
            return None
        return self.follows.address, True

    async def serve(self, command: Command) -> Command:
        """Answers another broker, or a client."""
        return await self.services.serve(command)

    def opened(self, opened: Opened) -> None:
        super().opened(opened)
        if self.master is not None:
            self.services.opened(heard_names(session.replica for session in self.master.sessions.values()))

    def stepped_down(self, ended: SteppedDown) -> None:
        super().stepped_down(ended)
        if self.alive:
            self.services.closed(ended.text)

    def tell_appended(self) -> None:
        """Tells replication at the end of a turn that the log grew."""
        if self.is_open and self.master is not None and self.store.appended != self.master.log.end:
            self.act(self.master.appended(self.store.appended))

    def _arrived(self, queues: Queues) -> None:
        self.services.arrived(queues)

    def _show(self) -> None:
        super()._show()
        master = self.follows.name if self.is_following and self.follows is not None else ""
        if self.alive and master != self._followed:
            self._followed = master
            if master:
                self.services.following()

    def holds(self, start: int, data: bytes, *, durable: bool = False) -> bool:
        """See Holder; bytes without a name are no copy."""
        if self.is_nameless and self.alive and self.record.history.epochs:
            self.is_nameless = False
        return not self.is_nameless and super().holds(start, data, durable=durable)

    def retain(self, keep_ms: int) -> None:
        """Deletes what has expired, as if all but the last `keep_ms` had been stored three days ago."""
        store, services = self.store, self.services
        append_mark = services.writer.append_mark if services.writer.refusal is None else None
        now_ms = self.clock.wall_ms() + self.store_config.file_reserved_hours * HOUR_MS - keep_ms
        if store.retain(now_ms, True, append_mark, services.first_waiting()):
            if self.master is not None:
                self.act(self.master.retained(store.first_offset, self.now))
            elif self.slave is not None:
                self.slave.log.first = store.first_offset

    def rest(self) -> None:
        super().rest()
        self.services.draining()

    def wake(self) -> None:
        super().wake()
        self.services.resumed()

    def stop(self) -> None:
        """Stops cleanly: services first, as a broker does."""
        try:
            self.in_loop(lambda: self.loop.finish(self.services.stop()))()
            self.tell_appended()
            self.store.flush_once()
            self.services.save()
        except (PowerCut, StoreError, OSError):
            self.die(power=True)
            return
        super().stop()

    def produce(self, queue_id: int, body: bytes, level: AckLevel, done: Acked) -> None:
        self.put(NewMessage(topic="t", queue_id=queue_id, body=body, properties={}, **born(self)), level, done)

    def put(self, message: NewMessage, level: AckLevel, done: Acked) -> None:
        """Sends a message of any kind, by production's own writer."""
        if not self.is_open or self.refuses:
            return

        def write() -> None:
            writer = self.services.writer
            try:
                appended = writer.append(message)
            except (WriteRefused, DiskFull):
                return
            end = appended.physical_offset + appended.size
            writer.when_acknowledged(end, level, lambda status, reason: done(status, reason, appended))
            if self.alive and (self.master_terms.sync_flush or level.durable):
                self._later(0.001, self._flush)

        self.guarded(self.in_loop(write))


def born(node: SimNode) -> dict[str, Any]:
    """Returns when and where a message that is sent now was born: a client's clock is nobody else's."""
    return {"born_timestamp": node.clock.wall_ms(), "born_host": HOST}


def runs(node: SimNode) -> bool:
    """Returns whether a client gets an answer from a node now."""
    return node.alive and node.events.now >= node.paused_until
