"""Which topics are the broker's own."""

import pytest

from tandemq.spark.source.system_topics import is_system_topic


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "TBW102",
        "TANDEMQ_SPARK_LEDGER",
        "c_REPLY_TOPIC",
    ],
)
def test_bookkeeping_is_left_out(topic: str) -> None:
    assert is_system_topic(topic)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%group", "%DLQ%group", "my_SCHEDULE_TOPIC_XXXX"])
def test_topics_of_users_are_read(topic: str) -> None:
    assert not is_system_topic(topic)
