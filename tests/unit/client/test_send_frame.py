"""The frame of a send, made from a template."""

import pytest

from tandemq.client.config import ClientConfig
from tandemq.client.encode import outgoing, send_fields
from tandemq.client.send_frame import SendTemplate
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command, encode_request
from tandemq.model.message import Message
from tandemq.model.topic import QueueRef


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="T-1", body=b"x" * 300, tags='quote"', keys=("ä",), properties={"a": "\n\\"}, flag=-3),
        Message(topic="T-1", body=b"x" * 9000, delay_level=3),
    ],
)
def test_a_frame_from_the_template_is_the_frame_of_the_request(message: Message) -> None:
    item = outgoing(message, "ID", ClientConfig())
    queue = QueueRef("T-1", "broker-ü", 12)
    fields = send_fields(item, "G%1", 12, "broker-ü", 1234567890123, 4)
    request = Command(RequestCode.SEND_MESSAGE_V2, fields, item.body, opaque=77)
    assert SendTemplate("G%1", queue, 4).frame(item, 1234567890123, 77) == encode_request(request)
