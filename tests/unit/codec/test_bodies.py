"""JSON bodies to and from nouns; what other clients send differently is understood."""

import struct
import zlib

import pytest

from tandemq.codec import bodies, fastjson
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, decode_heartbeat, encode_heartbeat
from tandemq.codec.register import body_crc, decode_registration, encode_registration
from tandemq.errors import MalformedBody
from tandemq.model.route import BrokerGroup, QueueData, TopicRoute
from tandemq.model.topic import DataVersion, QueueRef, SubscriptionGroupConfig, TopicConfig

VERSION = DataVersion(3, 1_700_000_000_000, 7)
TOPIC = TopicConfig(name="t", read_queues=4, write_queues=3, perm=6, sys_flag=1, order=True, attributes={"a": "b"})
GROUP = SubscriptionGroupConfig(name="g", retry_max_times=3, consume_enable=False)
ROUTE = TopicRoute(
    queues=(QueueData(broker_name="b", read_queues=4, write_queues=4, perm=6),),
    groups=(BrokerGroup(cluster="c", name="b", addresses={0: "1.2.3.4:10911", 1: "1.2.3.5:10911"}),),
)
HEARTBEAT = Heartbeat(
    client_id="1.2.3.4@9",
    producer_groups=("p",),
    consumers=(
        ConsumerGroupInfo(
            group="g",
            message_model="BROADCASTING",
            subscriptions=(Subscription(topic="t", expression="A || B", version=12),),
        ),
    ),
)


@pytest.mark.parametrize(
    ("value", "write", "read"),
    [
        (VERSION, bodies.data_version_json, bodies.data_version_of),
        (TOPIC, bodies.topic_config_json, bodies.topic_config_of),
        (GROUP, bodies.group_config_json, bodies.group_config_of),
        (ROUTE, bodies.topic_route_json, bodies.topic_route_of),
        (QueueRef("t", "b", 3), bodies.queue_json, bodies.queue_of),
        (QueueRef("t", "b", 3), bodies.queue_key, bodies.queue_of),
        ({QueueRef("t", "b", 3): 5}, bodies.queue_table_json, bodies.queue_table_of),
        ({"k": "v"}, bodies.kv_table_json, bodies.kv_table_of),
    ],
)
@pytest.mark.parametrize("dumps", [fastjson.dumps, fastjson.dumps_unquoted, fastjson.dumps_pretty])
def test_round_trips(value: object, write: object, read: object, dumps: object) -> None:
    assert read(fastjson.loads(dumps({"x": write(value)}))["x"]) == value  # type: ignore[operator]


def test_tables_round_trip() -> None:
    topics = bodies.topic_table_of(bodies.topic_table_json([TOPIC], VERSION))
    assert topics == ({"t": TOPIC}, VERSION)
    version = bodies.data_version_json(VERSION)
    groups = {"subscriptionGroupTable": {"g": bodies.group_config_json(GROUP)}, "dataVersion": version}
    assert bodies.group_table_of(groups) == ({"g": GROUP}, VERSION)
    offsets = fastjson.dumps_unquoted({"offsetTable": {"t@g": {0: 5}}, "dataVersion": version})
    assert b'"t@g":{0:5}' in offsets
    assert bodies.offset_table_of(fastjson.loads(offsets)) == ({"t@g": {0: 5}}, VERSION)


def test_route_text_has_no_blank_and_the_keys_a_client_needs() -> None:
    """Go splits the text of brokerAddrs by hand."""
    found = bodies.topic_route_json(ROUTE)
    assert b'"brokerAddrs":{0:"1.2.3.4:10911",1:"1.2.3.5:10911"}' in fastjson.dumps_unquoted(found)
    assert b'"brokerAddrs":{"0":"1.2.3.4:10911","1":"1.2.3.5:10911"}' in fastjson.dumps(found)
    assert b"orderTopicConf" not in fastjson.dumps(found)


def test_cluster_info_round_trip() -> None:
    text = fastjson.dumps_unquoted(bodies.cluster_info_json(ROUTE.groups, {"c": ["b"]}))
    assert bodies.cluster_info_of(fastjson.loads(text)) == ({"b": ROUTE.groups[0]}, {"c": ("b",)})


def test_lock_request_without_queues_as_cpp_sends_it() -> None:
    assert bodies.lock_request_of({"consumerGroup": "g", "clientId": "c"}) == ("g", "c", [])
    request = bodies.lock_request_json("g", "c", [QueueRef("t", "b", 0)])
    assert bodies.lock_request_of(request) == ("g", "c", [QueueRef("t", "b", 0)])


def test_reset_offset_list_form() -> None:
    listed = [{"brokerName": "b", "queueId": 1, "topic": "t", "offset": 9}]
    assert bodies.queue_table_of(listed) == {QueueRef("t", "b", 1): 9}


@pytest.mark.parametrize("value", [[], "x", 5, True])
def test_wrong_shapes_are_named(value: object) -> None:
    with pytest.raises(MalformedBody, match="expected"):
        bodies.topic_route_of(value)


def test_wrong_numbers_are_named() -> None:
    with pytest.raises(MalformedBody, match="perm='six'"):
        bodies.topic_config_of({"perm": "six"})
    with pytest.raises(MalformedBody, match="brokerAddrs"):
        bodies.broker_group_of({"brokerAddrs": {"zero": "h:1"}})


def test_heartbeat_round_trip() -> None:
    assert decode_heartbeat(encode_heartbeat(HEARTBEAT)) == HEARTBEAT
    assert HEARTBEAT.consumers[0].subscriptions[0].tags == ("A", "B")
    assert Subscription(topic="t").tags == ()


def test_heartbeat_of_the_cpp_client() -> None:
    """Ordinals for enums, subVersion as text, arrays absent."""
    body = (
        b'{"clientID":"1-1.2.3.4@DEFAULT","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g",'
        b'"messageModel":0,"subscriptionDataSet":[{"codeSet":[0],"subString":"A","subVersion":"1700","topic":"t"}]}]}\n'
    )
    heartbeat = decode_heartbeat(body)
    consumer = heartbeat.consumers[0]
    assert (consumer.consume_from, consumer.consume_type) == ("CONSUME_FROM_FIRST_OFFSET", "CONSUME_PASSIVELY")
    assert consumer.message_model == "BROADCASTING"
    assert consumer.subscriptions == (Subscription(topic="t", expression="A", version=1700),)
    assert heartbeat.producer_groups == ()


def test_registration_forms() -> None:
    body = encode_registration([TOPIC], VERSION)
    found = decode_registration(body, compressed=False, peer_version=407)
    assert (found.topics, found.version) == ({"t": TOPIC}, VERSION)
    assert body_crc(body) == zlib.crc32(body) & 0x7FFFFFFF

    old = fastjson.dumps(bodies.topic_table_json([TOPIC], VERSION))
    assert decode_registration(old, compressed=False, peer_version=36).topics == {"t": TOPIC}


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def test_compressed_registration() -> None:
    plain = (
        block(b'{"counter":7,"stateVersion":3,"timestamp":1700000000000}')
        + struct.pack(">i", 2)
        + block(b'new 8 9 6 SINGLE_TAG {"a":"b"}')
        + block(b"old 4 4 6 SINGLE_TAG")
        + block(b"[]")
        + block(b"mapping ignored")
    )
    found = decode_registration(zlib.compress(plain), compressed=True, peer_version=479)
    assert found.version == VERSION
    assert found.topics["new"] == TopicConfig(name="new", read_queues=8, write_queues=9, attributes={"a": "b"})
    assert found.topics["old"].read_queues == 4


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib",
        zlib.compress(b"")[:-3],
        zlib.compress(b"\x7f\xff\xff\xff"),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(block(b"{}") + struct.pack(">i", 1) + block(b"t x y z")),
        zlib.compress(block(b"{}") + struct.pack(">i", 1000)),
    ],
)
def test_broken_compressed_registrations_raise(body: bytes) -> None:
    with pytest.raises(MalformedBody):
        decode_registration(body, compressed=True, peer_version=479)


def test_registration_that_inflates_too_far_is_refused() -> None:
    """72 MB of zeros fit in 72 KB."""
    with pytest.raises(MalformedBody, match="inflates beyond"):
        decode_registration(zlib.compress(bytes(72_000_000)), compressed=True, peer_version=479)
