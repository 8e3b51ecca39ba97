"""Every option of the client, with RocketMQ's names, defaults and limits.

One config serves producers, consumers and admin: they share the connection, route and heartbeat options, and a program
usually sets two or three values. Group names, topics and callbacks are arguments, not options.
"""

from dataclasses import dataclass
from enum import Enum

from tandemq.errors import ConfigError
from tandemq.settings import check, setting


class MessageModel(Enum):
    """Who gets a message: one member of the group, or every one of them.

    consumer = PushConsumer("caches", listener, model=MessageModel.BROADCASTING)
    """

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFrom(Enum):
    """Where a group starts that has no offset yet.

    config = ClientConfig(consume_from=ConsumeFrom.FIRST_OFFSET)
    """

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Compression(Enum):
    """How bodies above the threshold are compressed. Only ZLIB is understood by 4.x and C++, Go and Node clients.

    config = ClientConfig(compress_type=Compression.ZSTD)
    """

    ZLIB = "ZLIB"
    LZ4 = "LZ4"
    ZSTD = "ZSTD"
    NONE = "NONE"


class Allocation(Enum):
    """How the queues of a topic are shared out among the members of a group; all members must use the same.

    config = ClientConfig(allocation=Allocation.AVG_BY_CIRCLE)
    """

    AVG = "AVG"
    AVG_BY_CIRCLE = "AVG_BY_CIRCLE"
    CONSISTENT_HASH = "CONSISTENT_HASH"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Options of a producer, consumer or admin client; docs/configuration.md has all of them with their limits.

    config = ClientConfig(namesrv="10.0.0.1:9876;10.0.0.2:9876", send_timeout_ms=5000, access_key="shop")
    """

    # where and who
    namesrv: str = setting(
        "namesrvAddr", "127.0.0.1:9876", "Name servers, `host:port` separated by `;`. One is used until it fails."
    )
    instance_name: str = setting(
        "instanceName", "", "Part of the client id; empty makes one that is unique to this client."
    )
    unit_name: str = setting("unitName", "", "Appended to the client id, as RocketMQ's unit name is.")
    access_key: str = setting("accessKey", "", "ACL access key; empty sends unsigned requests.")
    secret_key: str = setting("secretKey", "", "ACL secret key that signs every request.")
    security_token: str = setting("securityToken", "", "ACL security token, for temporary credentials.")
    use_tls: bool = setting("useTLS", False, "Speak TLS to name servers and brokers.")
    tls_ca_file: str = setting(
        "tlsClientTrustCertPath", "", "PEM file of the authority that signed the servers' certificates."
    )
    tls_cert_file: str = setting("tlsClientCertPath", "", "This client's certificate (PEM), where servers ask for one.")
    tls_key_file: str = setting("tlsClientKeyPath", "", "The private key of the client certificate (PEM).")
    tls_verify: bool = setting(
        "tlsClientAuthServer", True, "Check the server's certificate; false only for self-signed tests."
    )
    vip_channel: bool = setting("vipChannelEnabled", False, "Send to the broker's fast port (listenPort - 2).")

    # timing
    route_interval_ms: int = setting(
        "pollNameServerInterval", 30_000, "How often the routes of used topics are read again.", unit="ms", minimum=100
    )
    heartbeat_interval_ms: int = setting(
        "heartbeatBrokerInterval",
        30_000,
        "How often brokers are told that this client lives; they forget it after 120 s.",
        unit="ms",
        minimum=100,
        maximum=110_000,
    )
    api_timeout_ms: int = setting(
        "mqClientApiTimeout", 3_000, "Deadline of one request that has no other.", unit="ms", minimum=1
    )
    persist_interval_ms: int = setting(
        "persistConsumerOffsetInterval",
        5_000,
        "How often consumed offsets go to the offset store: what a crash makes the group see again.",
        unit="ms",
        minimum=50,
    )
    rebalance_interval_ms: int = setting(
        "rebalanceInterval",
        20_000,
        "How often queues are shared out again, besides the broker's notices.",
        unit="ms",
        minimum=100,
    )

    # producer
    send_timeout_ms: int = setting(
        "sendMsgTimeout", 3_000, "Deadline of one send with all its retries.", unit="ms", minimum=1
    )
    retry_times: int = setting(
        "retryTimesWhenSendFailed", 2, "Attempts after the first, on other brokers if there are any.", minimum=0
    )
    retry_not_stored_ok: bool = setting(
        "retryAnotherBrokerWhenNotStoreOK",
        False,
        "Also retry when the broker stored the message but a flush or copy is missing: makes duplicates.",
    )
    compress_over: int = setting(
        "compressMsgBodyOverHowmuch", 4096, "Bodies larger than this are compressed.", unit="bytes", minimum=0
    )
    compress_type: Compression = setting("compressType", Compression.ZLIB, "Compression of large bodies.")
    compress_level: int = setting("compressLevel", 5, "1 is fast, 9 is small.", minimum=1, maximum=9)
    message_size_max: int = setting(
        "maxMessageSize", 4 * 1024 * 1024, "Largest body, checked before it is sent.", unit="bytes", minimum=1
    )
    batch_size_max: int = setting(
        "batchSizeMax",
        1024 * 1024,
        "Encoded size at which a list of messages is split into several batches.",
        unit="bytes",
        minimum=1024,
    )
    batch_count_max: int = setting(
        "batchCountMax",
        1024,
        "Messages at which a list is split into several batches: the broker's answer names every one of them.",
        minimum=1,
        maximum=4096,
    )
    default_topic_queues: int = setting(
        "defaultTopicQueueNums", 4, "Queues of a topic that the broker creates on the first send.", minimum=1
    )
    latency_fault: bool = setting(
        "sendLatencyFaultEnable", False, "Avoid brokers for a while that were slow or failed, not only in one send."
    )
    in_flight_max: int = setting(
        "maxInFlight",
        1024,
        "Sends awaiting their answer; the next one waits for room. Each has its own deadline while it is in flight, so "
        "that a broker too slow for so many at a time makes them fail.",
        minimum=1,
        maximum=32_768,
    )
    in_flight_bytes_max: int = setting(
        "maxInFlightBytes",
        64 * 1024 * 1024,
        "Bytes of the bodies of sends awaiting their answer; the next send waits for room.",
        unit="bytes",
        minimum=1024,
    )

    # consumer
    consume_from: ConsumeFrom = setting(
        "consumeFromWhere", ConsumeFrom.LAST_OFFSET, "Where a group starts that has no offset."
    )
    consume_timestamp_ms: int = setting(
        "consumeTimestamp", 0, "The start for CONSUME_FROM_TIMESTAMP; 0 is half an hour ago.", unit="ms", minimum=0
    )
    allocation: Allocation = setting(
        "allocateMessageQueueStrategy", Allocation.AVG, "How queues are shared out; the same in the whole group."
    )
    pull_batch_size: int = setting("pullBatchSize", 32, "Messages asked for in one pull.", minimum=1, maximum=1024)
    pull_suspend_ms: int = setting(
        "brokerSuspendMaxTimeMillis", 15_000, "How long a broker may hold a pull that finds nothing.", unit="ms"
    )
    pull_timeout_ms: int = setting(
        "consumerTimeoutMillisWhenSuspend", 30_000, "Deadline of a pull; more than the suspend time.", unit="ms"
    )
    pull_error_delay_ms: int = setting(
        "pullTimeDelayMillsWhenException", 1_000, "Wait after a failed pull.", unit="ms", minimum=1
    )
    queue_cache_max: int = setting(
        "pullThresholdForQueue", 1_000, "Messages cached of one queue before pulling pauses.", minimum=1
    )
    queue_cache_bytes_max: int = setting(
        "pullThresholdSizeForQueue", 100, "Bytes cached of one queue before pulling pauses.", unit="MiB", minimum=1
    )
    cache_bytes_max: int = setting(
        "pullThresholdSizeForConsumer",
        256,
        "Bytes cached of all queues together before those that have messages cached stop pulling.",
        unit="MiB",
        minimum=1,
    )
    decompressed_size_max: int = setting(
        "maxDecompressedSize",
        16 * 1024 * 1024,
        "Largest decompressed body; reading a larger one raises BodyTooLarge in the listener.",
        unit="bytes",
        minimum=1024,
    )
    span_max: int = setting(
        "consumeConcurrentlyMaxSpan",
        2_000,
        "Distance of the oldest and newest cached offset before pulling pauses: bounds what a crash repeats.",
        minimum=1,
    )
    consume_batch_size: int = setting(
        "consumeMessageBatchMaxSize", 1, "Messages handed to one call of the listener.", minimum=1, maximum=1024
    )
    consume_concurrency: int = setting(
        "consumeThreadMax", 20, "Listener calls at the same time.", minimum=1, maximum=1000
    )
    reconsume_max: int = setting(
        "maxReconsumeTimes",
        -1,
        "Retries before the dead letter queue; -1: 16, and without end for ordered consumers.",
        minimum=-1,
    )
    suspend_ms: int = setting(
        "suspendCurrentQueueTimeMillis", 1_000, "Wait before an ordered queue tries its message again.", unit="ms"
    )
    consume_timeout_minutes: int = setting(
        "consumeTimeout",
        15,
        "A call of the listener that takes longer is cancelled and its messages come again; a plain function can't be "
        "cancelled: its messages come again, in ordered queues only after it has ended.",
        unit="min",
        minimum=1,
    )
    offset_dir: str = setting(
        "localOffsetStoreDir", "~/.rocketmq_offsets", "Where a broadcasting consumer keeps its offsets."
    )

    def __post_init__(self) -> None:
        check(self)
        if self.pull_timeout_ms <= self.pull_suspend_ms:
            raise ConfigError(
                f"consumerTimeoutMillisWhenSuspend={self.pull_timeout_ms}: must be more than "
                f"brokerSuspendMaxTimeMillis={self.pull_suspend_ms}, or every idle pull fails"
            )
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey and secretKey belong together: set both or neither")
        parse_namesrv(self.namesrv)


def parse_namesrv(text: str) -> tuple[str, ...]:
    """Returns the addresses of a name server list; ConfigError names the one that is wrong."""
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    if not addresses:
        raise ConfigError("namesrvAddr is empty: give at least one host:port")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise ConfigError(f"namesrvAddr={address!r}: host:port expected, several separated by ;")
    return addresses
