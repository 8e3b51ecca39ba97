"""What a node's replication looks like to people at one moment: the status of master, slave and observers."""

import dataclasses
from collections.abc import Mapping

from tandemq.codec.ha_reasons import Reason
from tandemq.replication.acks import AckQueue
from tandemq.replication.epochs import ReplicaRecord, place_of
from tandemq.replication.first_copy import CopyProgress
from tandemq.replication.following.core import SlavePhase
from tandemq.replication.hands import StoreHands
from tandemq.replication.master_state import MasterState
from tandemq.replication.relay import RelayShell
from tandemq.replication.session import Departure, Session
from tandemq.replication.slave import SlaveShell
from tandemq.replication.slave_state import SlaveState
from tandemq.replication.status import HaStatus, ReplicaStatus, register_shown

RATE_AGE_MAX = 3.0
"""Seconds after which the speed of a session that sends nothing is shown as 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """What every role shows, at `now`."""

    hands: StoreHands
    record: ReplicaRecord
    group: str
    level: str
    events: Mapping[str, int]
    now: float

    def idle(self) -> HaStatus:
        """Returns the status of a node without a role."""
        return self._base("none", "stopped", self.hands.store.appended, {})

    def _base(
        self, role: str, phase: str, confirmed: int, joining: Mapping[str, frozenset[str]], **more: object
    ) -> HaStatus:
        store, record, hands = self.hands.store, self.record, self.hands
        status = HaStatus(
            role=role,
            phase=phase,
            replica=record.replica,
            group=self.group,
            epoch=record.promise.number,
            first=store.first_offset,
            end=store.appended,
            flushed=store.flushed,
            confirmed=confirmed,
            level=self.level,
            members=tuple(sorted(record.members)),
            in_sync=tuple(sorted(record.in_sync)),
            cuts=tuple(hands.cuts),
            cut_bytes=hands.cut_bytes,
            lacks=record.lacks,
            copying_to=record.copying_to,
            events=dict(self.events),
            register=register_shown(record.register, dict(joining)),
        )
        return dataclasses.replace(status, **more)  # type: ignore[arg-type]

    # --- master -----------------------------------------------------------------------------------------------------

    def of_master(self, state: MasterState, acks: AckQueue) -> HaStatus:
        """Returns the status of a master: who follows, who is away, what it waits for."""
        replicas = [self._replica(session) for session in state.sessions.values()]
        replicas += self._absent(state, {replica.replica for replica in replicas})
        health = self.hands.store.health
        phase, more = state.phase.value, {}
        if not health.writable:
            cause = Reason.DISK_FULL if health.is_full else Reason.LOG_POISONED
            more = {"error": health.reason, "reason": cause.value, "advice": cause.advice}
            phase = "disk full" if health.is_full else "log poisoned"
        register = self.record.register
        joining = {one: state.keeper.waits_of_joining(one) for one in register.joining_ids} if register else {}
        return self._base(
            "master",
            phase,
            state.confirmed,
            joining,
            **more,
            provisional=state.provisional,
            waiting_for=tuple(sorted(state.waiting_for)),
            opened_without=tuple(sorted(state.opened_without)),
            replicas=tuple(replicas),
            waiting_sends=len(acks),
        )

    def _replica(self, session: Session) -> ReplicaStatus:
        """Returns what is known of a replica that is connected."""
        end, now = self.hands.store.appended, self.now
        lag = max(0, end - session.received) if session.is_streaming else 0
        caught_up = session.caught_up_at if session.caught_up_at is not None else session.connected_at
        return ReplicaStatus(
            replica=session.replica,
            address=session.address,
            peer=session.peer,
            state="observing" if session.observer and session.is_streaming else session.state.value,
            protocol="classic" if session.classic else "extended",
            received=session.received,
            durable=session.durable,
            applied=session.applied,
            lag_bytes=lag,
            lag_ms=int((now - caught_up) * 1000) if lag else 0,
            rate=session.rate if now - session.rate_from < RATE_AGE_MAX else 0.0,
            in_sync=session.state.value == "in sync",
            is_member=bool(session.replica) and not session.observer,
        )

    def _absent(self, state: MasterState, here: set[str]) -> list[ReplicaStatus]:
        """Returns members that have no session, and others that left, with what they had when they were last seen."""
        record = self.record
        own_place, places = place_of(record.replica), {place_of(name) for name in here}
        begun = record.history.last.start if record.history.last is not None else 0
        members = {name for name in record.members | record.in_sync if place_of(name) != own_place}
        found = []
        for name in sorted(members | state.departures.keys()):
            is_member = name in members
            if name in here or (not is_member and place_of(name) in places):
                continue
            left = state.departures.get(name) or Departure(
                state.began_at,
                Reason.LOST,
                "not seen since the start",
                # In sync before this reign, it had about what was confirmed then; of what came since it has nothing.
                received=min(state.confirmed, begun) if name in record.in_sync else 0,
            )
            found.append(self._departed(name, left, is_member=is_member))
        return found

    def _departed(self, name: str, left: Departure, *, is_member: bool) -> ReplicaStatus:
        lag = max(0, self.hands.store.appended - left.received) if is_member or left.received else 0
        had_everything_at = left.at if left.had_everything_at is None else left.had_everything_at
        return ReplicaStatus(
            replica=name,
            address=left.address or place_of(name),
            peer="",
            state="away" if name in self.record.in_sync else "not connected",
            protocol="",
            received=left.received,
            durable=left.durable,
            applied=left.applied,
            lag_bytes=lag,
            lag_ms=int((self.now - had_everything_at) * 1000) if lag else 0,
            rate=0.0,
            in_sync=False,
            is_member=is_member,
            error=left.text,
            reason=left.reason.value,
            advice=left.reason.advice,
            error_age_ms=int((self.now - left.at) * 1000),
        )

    # --- slave ------------------------------------------------------------------------------------------------------

    def of_slave(self, shell: SlaveShell, relay: RelayShell | None) -> HaStatus:
        """Returns the status of a slave: whom it follows, how far, and why not; and who observes it."""
        state = shell.state
        trouble = shell.trouble or state.trouble
        more: dict[str, object] = {}
        if trouble is not None and not (isinstance(state, SlaveState) and state.phase is SlavePhase.FOLLOWING):
            age = int((self.now - trouble[0]) * 1000)
            more = {"error": trouble[2], "reason": trouble[1].value, "advice": trouble[1].advice, "error_age_ms": age}
        if isinstance(state, SlaveState):
            phase, confirmed, protocol = state.phase.value, state.confirmed, "extended"
        else:
            phase = "following" if state.is_connected else "not connected"
            confirmed, protocol = self.hands.store.appended, "classic"
        return self._base(
            "slave",
            phase,
            confirmed,
            {},
            master=shell.place.ha_address if shell.place is not None else "",
            master_replica=state.master if isinstance(state, SlaveState) else "",
            protocol=protocol,
            received_bytes=shell.received_bytes,
            replicas=self._observers(relay),
            **self._copy_progress(shell.progress),
            **more,
        )

    def _observers(self, relay: RelayShell | None) -> tuple[ReplicaStatus, ...]:
        """Returns who follows this slave."""
        if relay is None:
            return ()
        return tuple(self._replica(one) for one in relay.state.sessions.values() if one.is_streaming)

    def _copy_progress(self, progress: CopyProgress) -> dict[str, object]:
        if progress.master is None:
            return {}
        return {
            "master_first": progress.master.first,
            "master_end": progress.master.end,
            "lag_bytes": max(0, progress.master.end - self.hands.store.appended),
            "lag_ms": progress.lag_ms(self.now),
            "seconds_left": progress.seconds_left,
        }
