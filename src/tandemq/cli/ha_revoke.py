"""`tandemq ha revoke`: what a supervisor runs after a broker has ended, so that nobody waits for its lease.

The unit's ExecStopPost= calls it when the process is gone, however it ended.  It takes the store's own lock first: as
long as any process has the store open, that one may be reigning and nothing is revoked.
"""

from tandemq.broker.config import BrokerConfig
from tandemq.broker.failover.coordinator import Coordinator
from tandemq.cli.config_file import Loaded
from tandemq.clock import SystemClock
from tandemq.formats import layout
from tandemq.replication import replica_file
from tandemq.replication.config import ReplicationConfig
from tandemq.store.disk import FileDisk


async def revoke(loaded: Loaded) -> str:
    """Revokes the lease under which the broker of this configuration reigned; returns what was done.

    StoreLocked while it runs; CoordinatorError if etcd does not answer: then the lease ends by itself.
    """
    config, broker = loaded[ReplicationConfig], loaded[BrokerConfig]
    if not config.coordinator:
        return "haCoordinator is empty: there is no lease"
    if broker.broker_groups > 1:
        return "each of several groups (brokerGroups) has a lease of its own: they end by themselves"
    disk = FileDisk(8)
    record = replica_file.load(disk, broker.store_root)
    if record is None:
        return "this store has never been part of a group: there is no lease"
    lock = disk.lock(broker.store_root / layout.LOCK)
    try:
        coordinator = Coordinator(config, broker.cluster_name, broker.broker_name, SystemClock())
        try:
            await coordinator.read()
            keys = coordinator.keys
            if keys.holder is None or keys.holder.replica != record.replica:
                return "this broker held no lease"
            await coordinator.client.revoke(keys.holder_lease)
        finally:
            await coordinator.stop()
    finally:
        lock.release()
    return "the lease of this broker is revoked: another may be elected at once"
