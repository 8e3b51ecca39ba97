"""Heartbeats: what a client says it produces and consumes."""

import pytest

from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, decode_heartbeat, encode_heartbeat
from tandemq.errors import MalformedBody


def test_a_heartbeat_comes_back_as_it_was_written() -> None:
    consumer = ConsumerGroupInfo(group="g", subscriptions=(Subscription(topic="T", expression="a || b"),))
    told = Heartbeat(client_id="c@1", consumers=(consumer,), producer_groups=("p",))
    found = decode_heartbeat(encode_heartbeat(told))
    assert (found.client_id, found.producer_groups) == ("c@1", ("p",))
    assert found.consumers[0].group == "g"
    assert found.consumers[0].subscriptions[0].topic == "T"
    assert set(found.consumers[0].subscriptions[0].tags) == {"a", "b"}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"consumerDataSet":5}', b'{"consumerDataSet":[1]}'])
def test_what_is_no_heartbeat_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        decode_heartbeat(body)
