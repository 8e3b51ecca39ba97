"""What an operator can set about replication."""

from dataclasses import dataclass

from tandemq.coordination.endpoints import parse_place
from tandemq.errors import ConfigError
from tandemq.model.ack_level import AckLevel, parse_level
from tandemq.settings import check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """Options of the HA port, of the waits for copies, and of the start after a crash."""

    ha_listen_port: int = setting(
        "haListenPort", 0, "Port a master listens on for its slaves; 0 takes listenPort + 1.", minimum=0, maximum=65535
    )
    ha_master_address: str = setting(
        "haMasterAddress",
        "",
        "HA address (host:port) a slave connects to. Empty: the name server's registration reply tells it.",
    )
    heartbeat_interval_ms: int = setting(
        "haSendHeartbeatInterval",
        5000,
        "An idle HA connection is proved alive this often, from both ends.",
        unit="ms",
        minimum=10,
        maximum=600_000,
        tunable=True,
    )
    housekeeping_interval_ms: int = setting(
        "haHousekeepingInterval",
        20000,
        "An HA connection that was silent this long is closed.",
        unit="ms",
        minimum=30,
        maximum=3_600_000,
        tunable=True,
    )
    transfer_batch_size: int = setting(
        "haTransferBatchSize",
        32768,
        "Largest data frame to a RocketMQ slave, whose buffers fit it. A TandemQ slave takes haExtendedBatchSize.",
        unit="bytes",
        minimum=1024,
        maximum=1 << 20,
    )
    batch_size_max: int = setting(
        "haExtendedBatchSize",
        8 << 20,
        "Largest data frame to a TandemQ slave. Larger costs latency of heartbeats, smaller costs throughput.",
        unit="bytes",
        minimum=4096,
        maximum=1 << 30,
    )
    gap_in_sync_max: int = setting(
        "haMaxGapNotInSync",
        256 << 20,
        "A slave this many bytes behind is not in sync: producers are told at once instead of waiting for it.",
        unit="bytes",
        minimum=1,
        maximum=1 << 40,
        tunable=True,
        aliases=("haSlaveFallbehindMax",),
    )
    slave_timeout_ms: int = setting(
        "slaveTimeout",
        3000,
        "How long a send waits for its flush and its copies, both under this one deadline.",
        unit="ms",
        minimum=1,
        maximum=600_000,
        tunable=True,
    )
    ack_poll_us: int = setting(
        "haAckPollMicros",
        1000,
        "While a single send waits for its copies, the master asks for the ack over and over for this long before it "
        "sleeps, and the slave for the next send if they follow one another as fast: a sleeping processor of a virtual "
        "machine takes tens of µs to wake up. Costs up to that much of a processor per such send. 0 = always "
        "sleep.",
        unit="µs",
        minimum=0,
        maximum=10_000,
    )
    in_sync_replicas: int = setting(
        "inSyncReplicas",
        2,
        "Copies (the master's own included) a SYNC_MASTER waits for. 1 makes it as weak as an ASYNC_MASTER.",
        minimum=1,
        maximum=64,
    )
    ack_level: str = setting(
        "haAckLevel",
        "",
        "The broker's default acks in full: copies (a number, majority or all), and :durable if they must be on disk. "
        "Empty: inSyncReplicas copies for a SYNC_MASTER, 1 for an ASYNC_MASTER.",
    )
    total_replicas: int = setting(
        "totalReplicas",
        1,
        "Nodes of the group, at least; majority and all count against this or the number of known members.",
        minimum=1,
        maximum=64,
    )
    sync_from_last_file: bool = setting(
        "haSyncFromLastFile",
        False,
        "An empty slave copies only the last segment, as RocketMQ does, instead of the whole retained history.",
        aliases=("syncFromLastFile",),
    )
    flow_control: bool = setting(
        "haFlowControlEnable", False, "Limit what each slave is sent to maxHaTransferByteInSecond.", tunable=True
    )
    rate_max: int = setting(
        "maxHaTransferByteInSecond",
        100 << 20,
        "Bytes per second to each slave when haFlowControlEnable is set.",
        unit="bytes/s",
        minimum=1024,
        maximum=1 << 40,
        tunable=True,
    )
    compression: str = setting(
        "haCompression",
        "",
        "A slave behind a thin link asks its TandemQ master for log bytes packed with zstd. Empty: as they are, by "
        "sendfile, which is faster where the link is.",
    )
    not_caught_up_ms: int = setting(
        "haMaxTimeSlaveNotCatchup",
        15000,
        "A slave that has been away this long leaves the in-sync set, once this node's own disk holds what it held.",
        unit="ms",
        minimum=1,
        maximum=86_400_000,
        tunable=True,
    )
    rejoin_wait_ms: int = setting(
        "haRejoinWait",
        10000,
        "How long a master that crashed waits for the replicas that were in sync, to take back what it lost, "
        "before an ASYNC_MASTER goes on without them and a SYNC_MASTER says that it stays read-only.",
        unit="ms",
        minimum=0,
    )
    open_without_replicas: bool = setting(
        "haOpenWithoutReplicas",
        False,
        "The operator's permission for a SYNC_MASTER to go on after haRejoinWait although replicas that were in sync "
        "did not come. What only they hold is lost.",
    )
    readers_wait: bool = setting(
        "haReadersWaitForCopies",
        False,
        "Readers of a SYNC_MASTER see nothing that has fewer copies than required, even when its slave stays away. "
        "False: once the slave has left the in-sync set, readers see what is on the master's own disk.",
    )
    shared_key: str = setting(
        "haSharedKey",
        "",
        "Secret that the brokers of a group prove to each other: on the HA port, where it then seals every frame, "
        "and with every order from broker to broker. At least 16 characters that nobody guesses; the same on all.",
    )
    classic_peers: str = setting(
        "haClassicPeers",
        "",
        "Whether peers that speak RocketMQ's own HA protocol, in which nobody can prove anything, are served as "
        "slaves, followed as masters and counted: true or false. Empty: true without a haSharedKey, false with one.",
    )
    tls_enable: bool = setting(
        "haTlsEnable",
        False,
        "The HA port speaks TLS and nothing else, with the certificates of the remoting port (tlsServer…, tlsClient…). "
        "Set it on every broker of the group, with tlsServerCertPath and tlsServerKeyPath on slaves too: each may "
        "become master. RocketMQ peers can't take part; log bytes are copied and encrypted, not sent by sendfile.",
    )
    sessions_max: int = setting(
        "haSessionsMax",
        64,
        "Slaves a master serves at the same time. Connections that have not proven that they belong here don't count.",
        minimum=1,
        maximum=1024,
    )
    metadata_interval_ms: int = setting(
        "slaveSyncInterval",
        10000,
        "How often a slave of a RocketMQ master asks for topics, groups and offsets; from a TandemQ master they come "
        "within a second of a change.",
        unit="ms",
        minimum=100,
    )
    reconnect_ms_max: int = setting(
        "haReconnectWaitMax",
        5000,
        "A slave that lost its master tries again at once, then with growing pauses up to this one.",
        unit="ms",
        minimum=10,
    )

    coordinator: str = setting(
        "haCoordinator",
        "",
        "Where the register of the group lives and elections are decided: etcd://host:port,host:port or, with TLS, "
        "etcds://host:port. The same on every broker of the group. Empty: the group keeps its register itself and a "
        "person promotes.",
    )
    coordinator_ca_path: str = setting(
        "haCoordinatorCaPath", "", "PEM certificates that etcd's own must come from; empty: those the system trusts."
    )
    coordinator_cert_path: str = setting(
        "haCoordinatorCertPath", "", "PEM certificate shown to an etcd that asks its clients for one."
    )
    coordinator_key_path: str = setting("haCoordinatorKeyPath", "", "PEM key of haCoordinatorCertPath.")
    coordinator_user: str = setting("haCoordinatorUser", "", "User of an etcd with authentication; empty: none.")
    coordinator_password: str = setting("haCoordinatorPassword", "", "Password of haCoordinatorUser.")
    lease_seconds: int = setting(
        "haLeaseSeconds",
        2,
        "With a coordinator: a master that did not renew its lease for this long stops, and another is elected. etcd "
        "grants no less than 1.5 times its election timeout (2 s by default).",
        unit="s",
        minimum=1,
        maximum=600,
    )
    priority: int = setting(
        "haPriority",
        0,
        "With a coordinator: of several that may be elected and have the same log the highest goes first, and it "
        "takes the reign back when it is in sync again, unless an operator has switched. -1: never elected.",
        minimum=-1,
        maximum=1000,
    )

    def __post_init__(self) -> None:
        check(self)
        if self.coordinator:
            parse_place(self.coordinator)
        if bool(self.coordinator_cert_path) != bool(self.coordinator_key_path):
            raise ConfigError("haCoordinatorCertPath and haCoordinatorKeyPath belong together: set both or none")
        if self.ack_level:
            parse_level(self.ack_level)
        if self.compression not in ("", "zstd"):
            raise ConfigError(f"haCompression={self.compression}: must be zstd, or empty for none")
        if self.classic_peers.lower() not in ("", "true", "false"):
            raise ConfigError(f"haClassicPeers={self.classic_peers!r}: must be true, false or empty")
        if self.ha_master_address:
            host, _, port = self.ha_master_address.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise ConfigError(
                    f"haMasterAddress={self.ha_master_address}: must be host:port, the HA port of the master "
                    "(its listenPort + 1 unless haListenPort is set), for example 10.0.0.1:10912"
                )

    @property
    def takes_classic_peers(self) -> bool:
        """Whether peers may take part that can't prove anything."""
        return self.classic_peers.lower() == "true" if self.classic_peers else not self.shared_key

    def default_level(self, sync_master: bool) -> AckLevel:
        """Returns the broker's default for messages and topics that don't name one."""
        if self.ack_level:
            return parse_level(self.ack_level)
        return AckLevel(self.in_sync_replicas if sync_master else 1)
