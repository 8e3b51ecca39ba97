"""HEART_BEAT's body: who a client is, and what its groups produce and consume.

{"clientID":"10.0.0.1@pid","producerDataSet":[{"groupName":"g"}],"consumerDataSet":[{"groupName":"cg",
 "consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",
 "unitMode":false,"subscriptionDataSet":[{"topic":"T","subString":"A||B",...,"subVersion":1700000000000}]}]}

C++ sends enums as ordinals and subVersion as text; Go sends codeSet as strings; arrays may be absent. `codeSet` is
kept only for writing: nobody can rely on it (C++ sends zeros), filters are built from `subString`.
"""

from dataclasses import dataclass
from typing import Any

from tandemq.codec import fastjson
from tandemq.codec.bodies import (
    bool_of,
    enum_of,
    int_of,
    list_of,
    load_object,
    load_request,
    object_of,
    text_of,
    texts_of,
)
from tandemq.errors import MalformedBody
from tandemq.model.message import tags_code

HEARTBEAT_SIZE_MAX = 1 << 20
"""About 4,000 subscriptions; a client with a hundred is rare."""

GROUPS_MAX = 4096
"""Producer groups, and consumer groups, that one heartbeat may name."""
SUBSCRIPTIONS_MAX = 4096
"""Subscriptions of all groups of one heartbeat."""

CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a group wants of one topic: RocketMQ's SubscriptionData."""

    topic: str
    expression: str = "*"
    expression_type: str = "TAG"
    version: int = 0
    """subVersion: the newer replaces the older."""
    class_filter_mode: bool = False

    @property
    def tags(self) -> tuple[str, ...]:
        """Returns the tags of a TAG expression; an empty set stands for all."""
        if self.expression_type != "TAG" or self.expression in ("", "*"):
            return ()
        return tuple(tag.strip() for tag in self.expression.split("||") if tag.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupInfo:
    """One consumer group of a client: RocketMQ's ConsumerData."""

    group: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from: str = "CONSUME_FROM_LAST_OFFSET"
    unit_mode: bool = False
    subscriptions: tuple[Subscription, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerGroupInfo, ...] = ()
    fingerprint: int = 0
    without_subscriptions: bool = False


def subscription_json(subscription: Subscription) -> dict[str, Any]:
    tags = subscription.tags
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": [tags_code(tag) for tag in tags],
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": list(tags),
        "topic": subscription.topic,
    }


def subscription_of(value: Any) -> Subscription:
    found = object_of(value, "subscriptionData")
    return Subscription(
        topic=text_of(found, "topic"),
        expression=text_of(found, "subString", "*"),
        expression_type=text_of(found, "expressionType") or "TAG",
        version=int_of(found, "subVersion"),
        class_filter_mode=bool_of(found, "classFilterMode"),
    )


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    return fastjson.dumps(
        {
            "clientID": heartbeat.client_id,
            "consumerDataSet": [
                {
                    "consumeFromWhere": consumer.consume_from,
                    "consumeType": consumer.consume_type,
                    "groupName": consumer.group,
                    "messageModel": consumer.message_model,
                    "subscriptionDataSet": [subscription_json(s) for s in consumer.subscriptions],
                    "unitMode": consumer.unit_mode,
                }
                for consumer in heartbeat.consumers
            ],
            "heartbeatFingerprint": heartbeat.fingerprint,
            "producerDataSet": [{"groupName": group} for group in heartbeat.producer_groups],
            "withoutSub": heartbeat.without_subscriptions,
        }
    )


def decode_heartbeat(body: bytes | memoryview) -> Heartbeat:
    """Reads a heartbeat; raises MalformedBody when it is none."""
    if len(body) > HEARTBEAT_SIZE_MAX:
        raise MalformedBody(f"a heartbeat of {len(body)} bytes, the limit is {HEARTBEAT_SIZE_MAX}")
    found = load_request(body, "heartbeatData")
    listed = list_of(found.get("producerDataSet"), "producerDataSet", GROUPS_MAX)
    producers = [object_of(item, "producerData") for item in listed]
    consumers = list_of(found.get("consumerDataSet"), "consumerDataSet", GROUPS_MAX)
    count = sum(len(item.get("subscriptionDataSet") or ()) for item in consumers if isinstance(item, dict))
    if count > SUBSCRIPTIONS_MAX:
        raise MalformedBody(f"a heartbeat with {count} subscriptions, the limit is {SUBSCRIPTIONS_MAX}")
    return Heartbeat(
        client_id=text_of(found, "clientID"),
        producer_groups=tuple(text_of(item, "groupName") for item in producers),
        consumers=tuple(_consumer_of(item) for item in consumers),
        fingerprint=int_of(found, "heartbeatFingerprint"),
        without_subscriptions=bool_of(found, "withoutSub"),
    )


def _consumer_of(value: Any) -> ConsumerGroupInfo:
    found = object_of(value, "consumerData")
    subscriptions = list_of(found.get("subscriptionDataSet"), "subscriptionDataSet")
    return ConsumerGroupInfo(
        group=text_of(found, "groupName"),
        consume_type=enum_of(found, "consumeType", CONSUME_TYPES, "CONSUME_PASSIVELY"),
        message_model=enum_of(found, "messageModel", MESSAGE_MODELS, "CLUSTERING"),
        consume_from=enum_of(found, "consumeFromWhere", CONSUME_FROM, "CONSUME_FROM_LAST_OFFSET"),
        unit_mode=bool_of(found, "unitMode"),
        subscriptions=tuple(subscription_of(item) for item in subscriptions),
    )


def consumer_ids_of(body: bytes | memoryview) -> tuple[str, ...]:
    """Reads the answer of GET_CONSUMER_LIST_BY_GROUP."""
    return texts_of(load_object(body, "consumerList").get("consumerIdList"), "consumerIdList")
