"""Which topics are the broker's own bookkeeping."""

from tandemq.model.topic import (
    AUTO_CREATE_TOPIC,
    OFFSET_MOVED_EVENT,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)

_NAMES = {SCHEDULE_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_EVENT, AUTO_CREATE_TOPIC}


def is_system_topic(topic: str) -> bool:
    """Returns whether a topic is a broker's own (delays, halves, ops, traces): left out unless includeSystemTopics.

    Retry and dead letter topics are users'.
    """
    return (
        topic in _NAMES
        or topic.startswith(("RMQ_SYS_", "rmq_sys_", "%SYS%", "TANDEMQ_SPARK_"))
        or topic.endswith("_REPLY_TOPIC")
    )
