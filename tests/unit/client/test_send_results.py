"""What a broker's answer to a send means."""

import pytest

from tandemq.client.encode import Outgoing
from tandemq.client.message import SendStatus
from tandemq.client.send_results import send_result, spread_batch
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef

QUEUE = QueueRef("T", "a", 2)
ITEM = Outgoing("T", b"x", "", 0, 0, "ID")


def test_an_answer_says_where_the_message_is() -> None:
    ext = {"msgId": "ABC", "queueId": "2", "queueOffset": "7", "transactionId": "TX"}
    result = send_result(Command(0, ext), ITEM, QUEUE)
    assert result.queue is QUEUE
    assert (result.status, result.message_id, result.offset_message_id) == (SendStatus.SEND_OK, "ID", "ABC")
    assert (result.queue_offset, result.transaction_id, result.remark) == (7, "TX", "")


def test_the_broker_may_have_chosen_another_queue() -> None:
    assert send_result(Command(0, {"queueId": "3"}), ITEM, QUEUE).queue == QueueRef("T", "a", 3)


@pytest.mark.parametrize(
    "code", [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE]
)
def test_a_missing_promise_is_a_status(code: ResponseCode) -> None:
    result = send_result(Command(code, {}, remark="why"), ITEM, QUEUE)
    assert (result.status.name, result.remark, result.ok) == (code.name, "why", False)


def test_a_refusal_is_an_error_with_its_code() -> None:
    with pytest.raises(ReplyError, match="no reason") as refused:
        send_result(Command(ResponseCode.MESSAGE_ILLEGAL), ITEM, QUEUE)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_the_answer_to_a_batch_is_spread_over_its_messages() -> None:
    item = Outgoing("T", b"x", "", 0, 0, "A,B,C", batch=True)
    answer = Command(0, {"msgId": "1,2,3", "queueId": "2", "queueOffset": "10"})
    parts = spread_batch(send_result(answer, item, QUEUE))
    assert [(p.message_id, p.offset_message_id, p.queue_offset) for p in parts] == [
        ("A", "1", 10),
        ("B", "2", 11),
        ("C", "3", 12),
    ]
    short = Command(0, {"msgId": "1", "queueId": "2", "queueOffset": "10"})
    assert [p.offset_message_id for p in spread_batch(send_result(short, item, QUEUE))] == ["", "", ""]
