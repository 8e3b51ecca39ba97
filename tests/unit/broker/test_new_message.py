"""A message on its way into the log, and back in for another place."""

from tandemq.broker.new_message import NewMessage
from tandemq.formats.envelope import Enveloped
from tandemq.model.message import StoredMessage

HOST = bytes((10, 0, 0, 1, 0, 0, 0, 1))
STORED = StoredMessage(
    topic="SCHEDULE_TOPIC_XXXX", queue_id=2, queue_offset=7, physical_offset=300, size=120, flag=4, sys_flag=1,
    body_crc=9, born_timestamp=5, born_host=HOST, store_timestamp=6, store_host=bytes(8), reconsume_times=8,
    prepared_transaction_offset=90, body=b"text", properties={"REAL_TOPIC": "t"},
)  # fmt: skip


def test_a_copy_keeps_what_the_producer_said_and_takes_its_new_place() -> None:
    place = Enveloped("t", 3, 0, {"k": "v"})
    found = NewMessage.copy_of(STORED, place)
    assert (found.topic, found.queue_id, found.sys_flag, found.properties) == ("t", 3, 0, {"k": "v"})
    assert (found.body, found.flag, found.born_timestamp, found.born_host) == (b"text", 4, 5, HOST)
    assert (found.reconsume_times, found.prepared_transaction_offset) == (8, 90)
    assert found.is_copy, "limits for clients do not hold for what the log took before"


def test_moving_changes_the_place_alone() -> None:
    message = NewMessage(topic="t", queue_id=1, body=b"x", properties={"a": "1"}, born_timestamp=5, born_host=HOST)
    before = message.place
    message.move(Enveloped("other", 9, 4, {"b": "2"}))
    assert message.place == Enveloped("other", 9, 4, {"b": "2"})
    assert (message.body, message.is_copy) == (b"x", False)
    message.move(before)
    assert message.place == Enveloped("t", 1, 0, {"a": "1"})


def test_a_place_is_a_copy_of_the_properties() -> None:
    properties = {"a": "1"}
    message = NewMessage(topic="t", queue_id=1, body=b"", properties=properties, born_timestamp=5, born_host=HOST)
    message.place.properties["b"] = "2"
    assert properties == {"a": "1"}
