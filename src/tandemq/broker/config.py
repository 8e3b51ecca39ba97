"""What an operator may set about a broker, with RocketMQ's property names."""

import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tandemq.errors import ConfigError
from tandemq.model.topic import group_name_problem, topic_name_problem
from tandemq.settings import check, setting

REGION_LENGTH_MAX = 255
"""Of regionId: it is in every message and every send reply."""


class BrokerRole(Enum):
    """Who writes, and whether a send waits for a slave."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker. Paths, sizes and flushing are in StoreConfig, sockets in RemotingConfig, HA in ReplicationConfig."""

    # who we are
    cluster_name: str = setting("brokerClusterName", "DefaultCluster", "The cluster this broker registers under.")
    broker_name: str = setting("brokerName", "", "The group of one master and its slaves; empty takes the host name.")
    broker_groups: int = setting(
        "brokerGroups",
        1,
        "Groups of this cluster that `tandemq broker` runs on this machine, a process each: NAME-0, NAME-1, … with "
        "listenPort + 10·i and storePathRootDir/i. 1: one broker, named as it is.",
        minimum=1,
        maximum=64,
    )
    broker_id: int = setting("brokerId", 0, "0 is the master of its group, above 0 a slave.", minimum=0)
    role: BrokerRole = setting(
        "brokerRole",
        BrokerRole.ASYNC_MASTER,
        "ASYNC_MASTER replies without waiting for a slave, SYNC_MASTER when a slave has the message, SLAVE only reads.",
    )
    observer: bool = setting(
        "haObserver",
        False,
        "A slave beside production: it copies the log, is never counted as a copy nor elected, registers with no name "
        "server and writes nothing back. haMasterAddress may name the HA port of any broker of the group, also of a "
        "RocketMQ slave.",
    )
    namesrv_addr: str = setting(
        "namesrvAddr", "", "Name servers, host:port separated by ; — the broker registers with all."
    )
    broker_ip1: str = setting("brokerIP1", "", "Address told to clients; empty finds the machine's own.")
    broker_ip2: str = setting("brokerIP2", "", "Address told to slaves for HA; empty is brokerIP1.")
    vip_port_enable: bool = setting(
        "vipPortEnable", True, "Listen on listenPort-2 too, where old Java clients and upstream slaves send."
    )
    store_path_root_dir: str = setting("storePathRootDir", "", "Directory of log, queues and config; empty is ~/store.")
    store_path_commit_log: str = setting(
        "storePathCommitLog", "", "Directory of the commit log if it is not storePathRootDir/commitlog."
    )
    store_path_consume_queue: str = setting(
        "storePathConsumeQueue", "", "Directory of the consume queues if it is not storePathRootDir/consumequeue."
    )
    store_path_index: str = setting(
        "storePathIndex", "", "Directory of the key index if it is not storePathRootDir/index."
    )
    region_id: str = setting("regionId", "DefaultRegion", "Written into MSG_REGION of messages and send replies.")
    trace_on: bool = setting("traceOn", True, "Written into TRACE_ON of messages and send replies.", tunable=True)
    broker_permission: int = setting(
        "brokerPermission",
        6,
        "4 read + 2 write: what every topic's permission is masked with.",
        minimum=2,
        maximum=7,
        tunable=True,
    )

    # topics and groups
    auto_create_topic_enable: bool = setting(
        "autoCreateTopicEnable", True, "A send to an unknown topic creates it after the template TBW102.", tunable=True
    )
    auto_create_subscription_group: bool = setting(
        "autoCreateSubscriptionGroup",
        True,
        "An unknown consumer group is created when it first shows up.",
        tunable=True,
    )
    default_topic_queue_nums: int = setting("defaultTopicQueueNums", 8, "Queues of TBW102.", minimum=1, maximum=1024)
    cluster_topic_enable: bool = setting("clusterTopicEnable", True, "A topic named as the cluster may be a template.")
    broker_topic_enable: bool = setting("brokerTopicEnable", True, "A topic named as the broker may be a template.")
    trace_topic_enable: bool = setting("traceTopicEnable", False, "Create the topic of client traces at boot.")
    msg_trace_topic_name: str = setting("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "Where clients send their traces.")
    topics_max: int = setting(
        "topicsMax", 50_000, "Topics a broker holds at most.", minimum=32, maximum=1_000_000, tunable=True
    )
    groups_max: int = setting(
        "groupsMax", 50_000, "Subscription groups a broker holds at most.", minimum=16, maximum=1_000_000, tunable=True
    )

    # sends
    start_accept_send_request_timestamp: int = setting(
        "startAcceptSendRequestTimeStamp", 0, "Sends before this time are refused (milliseconds since 1970).", unit="ms"
    )
    reject_transaction_message: bool = setting("rejectTransactionMessage", False, "Refuse half messages.", tunable=True)
    store_reply_message_enable: bool = setting(
        "storeReplyMessageEnable", True, "Store the answers of request-reply beside pushing them.", tunable=True
    )
    forward_timeout_ms: int = setting(
        "forwardTimeoutMillis",
        2500,
        "How long a broker that is no master keeps what clients send to it, during a hand-over, until it can give it "
        "to the master; while a master is known it is given at once. 0 refuses everything at once. Less than the "
        "clients' own timeout (3 s).",
        unit="ms",
        minimum=0,
        maximum=60_000,
        tunable=True,
    )
    send_pending_max: int = setting(
        "sendThreadPoolQueueCapacity",
        100_000,
        "Sends waiting for their acknowledgement before new ones get SYSTEM_BUSY.",
        minimum=1,
        maximum=1_000_000,
        tunable=True,
    )

    # pulls
    long_polling_enable: bool = setting("longPollingEnable", True, "Hold a pull that finds nothing.", tunable=True)
    short_polling_time_ms: int = setting(
        "shortPollingTimeMills",
        1000,
        "How long a pull is held when long polling is off.",
        unit="ms",
        minimum=1,
        maximum=600_000,
        tunable=True,
    )
    pull_suspend_max_ms: int = setting(
        "pullSuspendMax",
        600_000,
        "Longest time a client may ask a pull to be held.",
        unit="ms",
        minimum=1,
        maximum=3_600_000,
        tunable=True,
    )
    pull_parked_max: int = setting(
        "pullThreadPoolQueueCapacity",
        100_000,
        "Parked pulls before new ones are answered at once.",
        minimum=1,
        maximum=1_000_000,
        tunable=True,
    )
    pull_error_delay_ms: int = setting(
        "pullErrorDelay",
        1000,
        "C++ clients pull again at once after an error: their error answers wait this long.",
        unit="ms",
        minimum=0,
        maximum=10_000,
        tunable=True,
    )
    lite_pull_message_enable: bool = setting("litePullMessageEnable", True, "Serve LITE_PULL_MESSAGE.", tunable=True)
    slave_read_enable: bool = setting(
        "slaveReadEnable", False, "Send consumers that are far behind to a slave.", tunable=True
    )
    offset_check_in_slave: bool = setting(
        "offsetCheckInSlave", False, "A slave may correct a consumer's offset.", tunable=True
    )
    enable_property_filter: bool = setting("enablePropertyFilter", False, "Allow SQL92 filters.", tunable=True)
    access_message_in_memory_max_ratio: int = setting(
        "accessMessageInMemoryMaxRatio",
        40,
        "Share of RAM within which messages count as in memory.",
        unit="%",
        minimum=1,
        maximum=95,
        tunable=True,
    )
    pull_bytes_max: int = setting(
        "maxTransferBytesOnMessageInMemory",
        256 * 1024,
        "Bytes of one pull answer unless the client asks for more.",
        unit="bytes",
        minimum=1024,
        maximum=12 * 1024 * 1024,
        tunable=True,
    )
    pull_count_max: int = setting(
        "maxTransferCountOnMessageInMemory",
        32,
        "Messages of one pull answer unless the client asks for more.",
        minimum=1,
        maximum=100_000,
        tunable=True,
    )
    pull_bytes_asked_max: int = setting(
        "maxTransferBytesAsked",
        8 * 1024 * 1024,
        "Bytes of one pull answer to a client that sends maxMsgBytes.",
        unit="bytes",
        minimum=1024,
        maximum=12 * 1024 * 1024,
        tunable=True,
    )

    # clients
    channel_expired_ms: int = setting(
        "channelExpiredTimeout",
        120_000,
        "A client without heartbeat for this long is forgotten.",
        unit="ms",
        minimum=1000,
        maximum=86_400_000,
        tunable=True,
    )
    notify_consumer_ids_changed_enable: bool = setting(
        "notifyConsumerIdsChangedEnable", True, "Tell a group at once when its members change.", tunable=True
    )
    rebalance_lock_max_live_ms: int = setting(
        "rebalanceLockMaxLiveTime",
        60_000,
        "An ordered queue's lock not renewed for this long is free.",
        unit="ms",
        minimum=1000,
    )
    queue_locks_max: int = setting("queueLocksMax", 200_000, "Queue locks held at most.", minimum=16)

    # name servers and snapshots
    register_period_ms: int = setting(
        "registerNameServerPeriod",
        30_000,
        "How often the broker registers with every name server.",
        unit="ms",
        minimum=10_000,
        maximum=60_000,
        tunable=True,
    )
    register_timeout_ms: int = setting(
        "registerBrokerTimeoutMills",
        24_000,
        "How long one registration may take.",
        unit="ms",
        minimum=100,
        maximum=600_000,
        tunable=True,
    )
    flush_consumer_offset_interval_ms: int = setting(
        "flushConsumerOffsetInterval",
        5000,
        "How often consumer offsets are saved.",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        tunable=True,
    )
    consumer_offset_update_version_step: int = setting(
        "consumerOffsetUpdateVersionStep", 500, "Commits after which the offset table gets a new version.", minimum=1
    )

    # delay and transactions (the services read them)
    flush_delay_offset_interval_ms: int = setting(
        "flushDelayOffsetInterval",
        10_000,
        "How often delay offsets are saved.",
        unit="ms",
        minimum=100,
        maximum=3_600_000,
        tunable=True,
    )
    timer_wheel_enable: bool = setting(
        "timerWheelEnable", True, "Take messages for an exact time (RocketMQ 5's timer messages).", tunable=True
    )
    timer_max_delay_sec: int = setting(
        "timerMaxDelaySec",
        3 * 24 * 3600,
        "How far ahead a message may be timed.",
        unit="s",
        minimum=1,
        maximum=365 * 24 * 3600,
        tunable=True,
    )
    timer_messages_max: int = setting(
        "timerMessagesMax",
        1_000_000,
        "Timer messages that may wait at once, about 300 bytes of memory each; one more is refused.",
        minimum=1,
        maximum=10_000_000,
        tunable=True,
    )
    transaction_timeout_ms: int = setting(
        "transactionTimeOut",
        6000,
        "Age from which a half message is checked.",
        unit="ms",
        minimum=1,
        maximum=604_800_000,
        tunable=True,
    )
    transaction_check_max: int = setting(
        "transactionCheckMax",
        15,
        "Checks after which a half message is discarded.",
        minimum=1,
        maximum=1_000_000,
        tunable=True,
    )
    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval",
        30_000,
        "How often half messages are checked.",
        unit="ms",
        minimum=10,
        maximum=86_400_000,
        tunable=True,
    )

    # for operators
    metrics_port: int = setting(
        "metricsPort", 0, "Port of the Prometheus endpoint (GET /metrics); 0 = none.", minimum=0, maximum=65535
    )
    metrics_address: str = setting("metricsAddress", "127.0.0.1", "Address the Prometheus endpoint listens on.")

    def __post_init__(self) -> None:
        check(self)
        if not self.broker_name:
            object.__setattr__(self, "broker_name", _host_name())
        if (problem := topic_name_problem(self.cluster_name)) is not None:
            raise ConfigError(f"brokerClusterName: {problem.replace('topic', 'cluster')}")
        if (problem := group_name_problem(self.broker_name)) is not None:
            raise ConfigError(f"brokerName: {problem.replace('group', 'broker')}")
        if len(self.region_id) > REGION_LENGTH_MAX or not self.region_id.isprintable():
            raise ConfigError(
                f"regionId has {len(self.region_id)} characters: at most {REGION_LENGTH_MAX}, all printable"
            )
        if self.observer:
            self._be_observer()
        if self.role is not BrokerRole.SLAVE:
            object.__setattr__(self, "broker_id", 0)  # as upstream: a master is 0 whatever the file says
        elif self.broker_id == 0:
            raise ConfigError(
                "brokerRole=SLAVE with brokerId=0: a slave needs an id of its own, 1 or higher; with haCoordinator, "
                "where any broker may be elected, brokerRole is SYNC_MASTER or ASYNC_MASTER"
            )

    def _be_observer(self) -> None:
        if self.role is BrokerRole.SYNC_MASTER:
            raise ConfigError("haObserver=true with brokerRole=SYNC_MASTER: an observer is a SLAVE")
        object.__setattr__(self, "role", BrokerRole.SLAVE)
        if self.broker_id == 0:
            object.__setattr__(self, "broker_id", 1)  # nobody is told, but a slave has one

    @property
    def store_root(self) -> Path:
        """Where the store lies."""
        return Path(self.store_path_root_dir or "~/store").expanduser()

    @property
    def store_directories(self) -> dict[str, Path]:
        """Parts of the store that lie elsewhere: name under the root -> directory."""
        named = {
            "commitlog": self.store_path_commit_log,
            "consumequeue": self.store_path_consume_queue,
            "index": self.store_path_index,
        }
        placed = {name: Path(text).expanduser() for name, text in named.items() if text}
        return {name: path for name, path in placed.items() if path != self.store_root / name}

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers, in the order given, each once."""
        return tuple(
            dict.fromkeys(part.strip() for part in self.namesrv_addr.replace(",", ";").split(";") if part.strip())
        )


def _host_name() -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "-" for c in socket.gethostname())
    return kept[:100] or "DEFAULT_BROKER"
