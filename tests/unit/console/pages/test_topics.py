"""Kinds of topics, and what forms may say."""

import pytest

from tandemq.console.pages.topics import _attributes, kind_of
from tandemq.errors import ClientError


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", "user"), ("%RETRY%g", "retry"), ("%DLQ%g", "dead"), ("TBW102", "system"), ("broker-a", "system"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "system"), ("DefaultCluster_REPLY_TOPIC", "system"), ("rmq_sys_x", "system"),
    ],
)  # fmt: skip
def test_a_topic_has_one_kind(topic: str, kind: str) -> None:
    assert kind_of(topic, {"broker-a", "DefaultCluster"}) == kind


def test_attributes_are_pairs() -> None:
    assert _attributes("+a=1, b=2\nc=x=y") == {"a": "1", "b": "2", "c": "x=y"}
    with pytest.raises(ClientError, match="name=value"):
        _attributes("a")
