"""From what the operator configured to what each state machine of a node works by.  Pure."""

from dataclasses import dataclass

from tandemq.codec.ha_register import GROUP_HOME
from tandemq.model.ack_level import AckLevel
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.following.core import SlaveTerms
from tandemq.replication.mastership.core import MasterTerms
from tandemq.replication.relay_state import RelayTerms


@dataclass(slots=True)
class NodeTerms:
    """The configuration of one node; a coordinator makes some of it shorter."""

    config: ReplicationConfig
    group: str
    address: str
    sync_flush: bool
    observer: bool = False
    home: str = GROUP_HOME
    """Where the register lives."""
    lease: float = 0.0
    """Of a reign, where there is a coordinator: whoever is silent for so long is missed."""

    @property
    def _silence_max(self) -> float:
        return self.lease or float("inf")

    @property
    def heartbeat(self) -> float:
        return min(self.config.heartbeat_interval_ms / 1000, self._silence_max / 6)

    @property
    def housekeeping(self) -> float:
        return min(self.config.housekeeping_interval_ms / 1000, self._silence_max * 0.6)

    def of_master(self, level: AckLevel, *, strict: bool, broker_id: int) -> MasterTerms:
        config = self.config
        return MasterTerms(
            group=self.group,
            level=level,
            address=self.address,
            broker_id=broker_id,
            sync_flush=self.sync_flush,
            strict_open=strict and not config.open_without_replicas,
            heartbeat=self.heartbeat,
            housekeeping=self.housekeeping,
            gap_max=config.gap_in_sync_max,
            away_max=min(config.not_caught_up_ms / 1000, self._silence_max * 0.3),
            rejoin_wait=config.rejoin_wait_ms / 1000,
            readers_wait=config.readers_wait,
            shared_key=config.shared_key,
            classic_peers=config.takes_classic_peers,
            classic_batch=config.transfer_batch_size,
            batch=config.batch_size_max,
            last_file_only=config.sync_from_last_file,
            rate_max=config.rate_max if config.flow_control else None,
            sessions_max=config.sessions_max,
            home=self.home,
            lease=self.lease,
        )

    def of_slave(self, broker_id: int) -> SlaveTerms:
        config = self.config
        return SlaveTerms(
            group=self.group,
            address=self.address,
            broker_id=broker_id,
            heartbeat=self.heartbeat,
            housekeeping=self.housekeeping,
            shared_key=config.shared_key,
            last_file_only=config.sync_from_last_file,
            observer=self.observer,
            compression=config.compression,
            batch=config.batch_size_max,
        )

    def of_relay(self) -> RelayTerms:
        config = self.config
        return RelayTerms(
            group=self.group,
            shared_key=config.shared_key,
            heartbeat=config.heartbeat_interval_ms / 1000,
            housekeeping=config.housekeeping_interval_ms / 1000,
            batch=config.batch_size_max,
        )
