"""Where a topic lives: what a name server tells its clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTER_ID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroup:
    """One brokerName with the addresses of its members; id 0 is the master."""

    cluster: str
    name: str
    addresses: Mapping[int, str]
    """broker id -> "ip:port" """
    acting_master: bool = False
    """Upstream 5.x slaves of this group may stand in for a lost master (enableSlaveActingMaster)."""

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """How many queues of a topic one broker group has, and what may be done with them."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    queues: tuple[QueueData, ...]
    groups: tuple[BrokerGroup, ...]
    order_conf: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
