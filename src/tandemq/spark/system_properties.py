"""Which properties of a message are not its user's: set by columns, by clients or by brokers.

The sink leaves them out of a `properties` map, and the source out of `headers`. Two are ours: Kafka's keys and header
values are bytes, RocketMQ's properties are text, so what is no plain text travels as base64 and says so.
"""

from tandemq.model.message import ACK_COPIES, DELAY, KEYS, SHARDING_KEY, TAGS, UNIQUE_KEY

KEY_ENCODING = "TANDEMQ_KEY_ENCODING"
"""`base64`: KEYS holds the base64 text of a key that is no text."""
BINARY_HEADERS = "TANDEMQ_BINARY_HEADERS"
"""Names of the properties whose values are base64 text, each URL-quoted, separated by commas."""
BASE64 = "base64"

RESERVED = (
    UNIQUE_KEY, KEYS, TAGS, DELAY, SHARDING_KEY, ACK_COPIES, "WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", "REAL_TOPIC",
    "REAL_QID", "PGROUP", "TRAN_MSG", "__transactionId__", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME",
    "MAX_RECONSUME_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "POP_CK", "1ST_POP_TIME",
    "MIN_OFFSET", "MAX_OFFSET", "__CRC32#", "TIMER_OUT_MS", "CHECK_IMMUNITY_TIME_IN_SECONDS", KEY_ENCODING,
    BINARY_HEADERS,
)  # fmt: skip
