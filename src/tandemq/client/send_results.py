"""What a broker's answer to a send means."""

from tandemq.client.encode import Outgoing
from tandemq.client.message import SendResult, SendStatus
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.model.topic import QueueRef

_STATUSES = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
}


def send_result(reply: Command, item: Outgoing, queue: QueueRef) -> SendResult:
    """Returns what an answered send says; raises ReplyError when it says no."""
    status = _STATUSES.get(reply.code)
    if status is None:
        raise ReplyError(reply.code, reply.remark or "the broker gave no reason")
    ext = reply.ext
    queue_id = int(ext.get("queueId", queue.queue_id))
    where = queue if queue_id == queue.queue_id else QueueRef(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        status,
        item.unique_key,
        ext.get("msgId", ""),
        where,
        int(ext.get("queueOffset", -1)),
        ext.get("transactionId", ""),
        reply.remark or "",
    )


def spread_batch(result: SendResult) -> list[SendResult]:
    """Returns one result per element of a batch: ids as the broker joined them, offsets counted from the first."""
    keys = result.message_id.split(",")
    ids = result.offset_message_id.split(",")
    if len(ids) != len(keys):
        ids = [""] * len(keys)
    return [
        result._replace(message_id=key, offset_message_id=offset_id, queue_offset=result.queue_offset + i)
        for i, (key, offset_id) in enumerate(zip(keys, ids, strict=True))
    ]
