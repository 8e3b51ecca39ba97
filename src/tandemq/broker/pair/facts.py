"""What a broker tells of its replication: to other brokers, to operators, to metrics, and in RocketMQ's own shape."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tandemq.broker.exposure import exposures
from tandemq.broker.handlers.peers import HaFacts
from tandemq.broker.pair.core import PairCore
from tandemq.broker.pair.lookout import SLAVE, register_facts
from tandemq.broker.pair.master_finder import MasterFinder
from tandemq.replication.status import HaStatus


class PairFacts:
    """Snapshots, made when somebody asks."""

    def __init__(self, core: PairCore, finder: MasterFinder) -> None:
        self._core = core
        self._finder = finder
        self._broker = core.broker
        self._live = core.live

    def status(self) -> HaStatus:
        """Returns the snapshot that metrics and events are made of."""
        core = self._core
        status = core.node.status()
        if core.failover is None:
            return status
        return dataclasses.replace(
            status,
            lease_left=core.failover.fence.left if core.node.is_open else 0.0,
            elections=dict(core.failover.elections),
            without_master=core.failover.without_master_s,
        )

    def detail(self) -> dict[str, Any]:
        """Returns the whole snapshot as plain data: the contract of `tandemq ha status --json`."""
        core, broker = self._core, self._live.broker
        found = dataclasses.asdict(core.node.status())
        found["broker"] = broker.broker_name
        found["brokerId"] = broker.broker_id
        found["address"] = self._broker.address
        found["brokerRole"] = self._broker.role.value
        found["coordination"] = core.failover.shown() if core.failover is not None else None
        found["observer"] = broker.observer
        if core.waits is not None:
            found["role"], found["phase"] = "master", "waiting for word from its group"
        refusal, health = self._broker.writer.refusal, self._broker.store.health
        found["warnings"] = exposures(self._live.remoting, self._live.replication)
        found["writable"] = refusal is None and health.writable
        found["refusal"] = health.reason if refusal is None else refusal.remark
        return found

    def ha_facts(self) -> HaFacts:
        """Returns what another broker is told that asks for this one's HA port."""
        broker = self._broker
        ip = broker.registration.identity.ha_address.rpartition(":")[0]
        return HaFacts(
            ha_address=f"{ip}:{self._core.node.ha_port or broker.ha_port}",
            master_flush_offset=broker.store.flushed,
            extra=self._of_master() if broker.is_master else self._of_slave(),
        )

    def _of_master(self) -> dict[str, str]:
        node = self._core.node
        promise = node.record.promise
        return {
            "tandemqHa": "1",
            "tandemqGroup": node.group,
            "tandemqPhase": node.phase,
            "tandemqEpoch": str(promise.number),
            "tandemqEpochId": promise.id,
            **self._common(),
        }

    def _of_slave(self) -> dict[str, str]:
        node = self._core.node
        last = node.record.last_reign
        return {
            "tandemqRole": SLAVE,
            "tandemqGroup": node.group,
            "tandemqEpoch": str(last.number if last is not None else 0),
            "tandemqEpochId": last.id if last is not None else "",
            "tandemqFollows": self._finder.address if node.is_following else "",
            **self._common(),
        }

    def _common(self) -> dict[str, str]:
        record, failover = self._core.node.record, self._core.failover
        found = {"tandemqNow": str(self._broker.clock.wall_ms()), **register_facts(record.register, record.replica)}
        return {**found, **failover.facts()} if failover is not None else found

    def ha_status(self) -> Mapping[str, Any]:
        """Returns the answer to GET_BROKER_HA_STATUS in upstream's shape."""
        status = self._core.node.status()
        connections = [
            {
                "addr": replica.peer,
                "slaveAckOffset": replica.received,
                "diff": replica.lag_bytes,
                "inSync": replica.in_sync,
                "transferredByteInSecond": int(replica.rate),
                "transferFromWhere": replica.received,
            }
            for replica in status.replicas
            if replica.peer
        ]
        return {
            "master": status.role == "master",
            "masterCommitLogMaxOffset": status.end,
            "inSyncSlaveNums": sum(1 for replica in status.replicas if replica.in_sync),
            "haConnectionInfo": connections,
            "haClientRuntimeInfo": {
                "masterAddr": status.master,
                "transferredByteInSecond": 0,
                "maxOffset": status.end,
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "activated": status.role == "slave" and not status.error,
            },
        }
