"""Nothing is open because somebody forgot to close it, and no account reaches beyond its own topics and groups."""

import json
from pathlib import Path

import pytest
from tests.security.guarded import Guarded, run

from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import OperatorCode, RequestCode
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, encode_heartbeat
from tandemq.model.message import parse_offset_message_id
from tandemq.model.topic import QueueRef
from tandemq.remoting.access.needs import rule_of
from tandemq.replication.metadata import PairCode
from tandemq.testing.waiting import until

Code = RequestCode
NO_PERMISSION = 16

OPEN_TO_EVERY_ACCOUNT = {
    Code.HEART_BEAT,  # of a client that neither produces nor consumes anything
    Code.UNREGISTER_CLIENT,  # of its own connection
    Code.CHECK_CLIENT_CONFIG,  # parses an expression
    Code.GET_BROKER_RUNTIME_INFO,  # the version and no more: tested below
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER, Code.GET_UNIT_TOPIC_LIST,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,  # what the account may use
}  # fmt: skip
EXT = {
    "topic": "orders", "b": "orders", "group": "workers", "consumerGroup": "workers", "groupName": "workers",
    "srcGroup": "workers", "destGroup": "others", "producerGroup": "producers", "queueId": "0", "offset": "0",
    "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9", "cluster": "DefaultCluster",
    "clusterName": "DefaultCluster", "brokerName": "broker-a", "namespace": "n", "username": "u", "subject": "User:u",
    "statsName": "n", "statsKey": "k", "clientId": "c", "msgId": "0" * 32, "index": "0", "count": "1",
}  # fmt: skip


def test_every_handler_declares_what_it_needs(tmp_path: Path) -> None:
    """With access control on, one that does not is refused to everybody; this is where it is noticed."""

    async def story(guarded: Guarded) -> None:
        (namesrv,) = guarded.cluster.name_servers
        for dispatcher in (guarded.broker.server.dispatcher, namesrv.remoting.dispatcher):
            answered = {**dispatcher.handlers, **dispatcher._send}
            assert [code for code, handler in answered.items() if rule_of(handler) is None] == []

    run(tmp_path, story)


async def outsider_answers(guarded: Guarded) -> dict[int, int]:
    """Every request code there is, with fields that all exist: code -> what an account that may do nothing is told."""
    found = {}
    (namesrv,) = guarded.cluster.name_servers
    topics = json.dumps({"topicConfigList": [{"topicName": "new"}], "groupConfigList": [{"groupName": "new"}]})
    locks = json.dumps({"consumerGroup": "workers", "clientId": "c", "mqSet": []})
    for dispatcher, address in (
        (guarded.broker.server.dispatcher, guarded.broker.address),
        (namesrv.remoting.dispatcher, guarded.cluster.namesrv_address),
    ):
        for code in {**dispatcher.handlers, **dispatcher._send}:
            body = {
                Code.HEART_BEAT: encode_heartbeat(Heartbeat(client_id="c")),
                Code.UPDATE_AND_CREATE_TOPIC_LIST: topics.encode(),
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: topics.encode(),
                Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"new"}',
                Code.CHECK_CLIENT_CONFIG: b'{"subscriptionData":{"topic":"orders","subString":"*"}}',
                Code.LOCK_BATCH_MQ: locks.encode(),
                Code.UNLOCK_BATCH_MQ: locks.encode(),
            }.get(code, b"")
            ext = {} if code == Code.UNREGISTER_CLIENT else EXT
            if code in (Code.END_TRANSACTION, Code.VIEW_MESSAGE_BY_ID, Code.CONSUMER_SEND_MSG_BACK):
                continue  # what they need depends on the record: tested below
            if code == OperatorCode.CHALLENGE:
                continue  # the client asked for one already, and signs with it
            found[code] = (await guarded.ask("outsider", code, ext, body, address=address)).code
    return found


def test_an_account_that_may_do_nothing_gets_nothing(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        await guarded.send("operator", "orders")
        answers = await outsider_answers(guarded)
        assert {code for code, answer in answers.items() if answer != NO_PERMISSION} == OPEN_TO_EVERY_ACCOUNT
        assert set(PairCode) <= set(answers)
        assert len(answers) > 90

    run(tmp_path, story)


def test_without_an_account_nothing_is_answered(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        (namesrv,) = guarded.cluster.name_servers
        for code in guarded.broker.server.dispatcher.handlers:
            answer = await guarded.ask("", code, EXT)
            assert answer.code == (0 if code == OperatorCode.CHALLENGE else NO_PERMISSION), code
        for code in namesrv.remoting.dispatcher.handlers:
            answer = await guarded.ask("", code, EXT, address=guarded.cluster.namesrv_address)
            assert answer.code == (0 if code == OperatorCode.CHALLENGE else NO_PERMISSION), code

    run(tmp_path, story)


def test_what_every_account_is_told_is_harmless(tmp_path: Path) -> None:
    """The kind of broker, and the topics one may use."""

    async def story(guarded: Guarded) -> None:
        for topic in ("orders", "bills"):
            await guarded.send("operator", topic)
        table = json.loads(bytes((await guarded.ask("outsider", Code.GET_BROKER_RUNTIME_INFO)).body))["table"]
        assert set(table) <= {"brokerVersion", "brokerVersionDesc", "tandemqIdempotentSends"}
        for account, topics in (("outsider", []), ("worker", ["orders"])):
            answer = await guarded.ask(
                account, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, address=guarded.cluster.namesrv_address
            )
            assert json.loads(bytes(answer.body))["topicList"] == topics

    run(tmp_path, story)


async def stored(guarded: Guarded, topic: str, **properties: str) -> tuple[str, int]:
    """(message id, physical offset) of a message the operator sent."""
    answer = await guarded.send("operator", topic, b"secret", **properties)
    assert answer.code == 0, answer.remark
    return answer.ext["msgId"], parse_offset_message_id(answer.ext["msgId"])[1]


def test_a_message_is_found_by_its_id_only_by_those_who_may_read_its_topic(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        _, mine = await stored(guarded, "orders")
        _, other = await stored(guarded, "bills")
        view = Code.VIEW_MESSAGE_BY_ID
        assert (await guarded.ask("worker", view, {"offset": str(mine)})).code == 0
        for offset in (mine, other):
            refused = await guarded.ask("outsider", view, {"offset": str(offset)})
            assert (refused.code, bytes(refused.body)) == (NO_PERMISSION, b"")
        # A topic in the request does not make the record one of that topic.
        lied = await guarded.ask("worker", view, {"offset": str(other), "topic": "orders"})
        assert (lied.code, bytes(lied.body)) == (NO_PERMISSION, b"")

    run(tmp_path, story)


def test_a_message_is_sent_back_only_by_those_who_may_read_its_topic(tmp_path: Path) -> None:
    """A copy in one's own retry topic would be a way to read anything."""

    async def story(guarded: Guarded) -> None:
        _, mine = await stored(guarded, "orders")
        _, other = await stored(guarded, "bills")
        _, delayed = await stored(guarded, "orders", DELAY="5")
        back = Code.CONSUMER_SEND_MSG_BACK
        ext = {"group": "workers", "delayLevel": "0", "originTopic": "orders"}
        assert (await guarded.ask("worker", back, {**ext, "offset": str(mine)})).code == 0
        assert (await guarded.ask("worker", back, {**ext, "offset": str(other)})).code == NO_PERMISSION
        assert (await guarded.ask("outsider", back, {**ext, "offset": str(mine)})).code == NO_PERMISSION
        # Nobody was ever given a record of an internal topic, so nobody can hand one back.
        for account in ("worker", "operator"):
            answer = await guarded.ask(account, back, {**ext, "offset": str(delayed)})
            assert (answer.code, "look message by offset failed" in (answer.remark or "")) == (1, True)

    run(tmp_path, story)


def test_queues_are_locked_only_by_those_who_may_consume_them(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        await guarded.send("operator", "orders")

        def request(group: str, topic: str) -> bytes:
            return fastjson.dumps(bodies.lock_request_json(group, "c", [QueueRef(topic, "broker-a", 0)]))

        for code in (Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ):
            assert (await guarded.ask("worker", code, {}, request("workers", "orders"))).code == 0
            for account, group, topic in (
                ("outsider", "workers", "orders"), ("worker", "others", "orders"), ("worker", "workers", "bills"),
            ):  # fmt: skip
                assert (await guarded.ask(account, code, {}, request(group, topic))).code == NO_PERMISSION

    run(tmp_path, story)


async def half_message(guarded: Guarded, topic: str) -> dict[str, str]:
    """The fields that end a transaction which the operator began."""
    answer = await guarded.send("operator", topic, b"half", TRAN_MSG="true", PGROUP="producers")
    assert answer.code == 0, answer.remark
    return {
        "producerGroup": "producers", "commitOrRollback": "8", "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(parse_offset_message_id(answer.ext["msgId"])[1]),
    }  # fmt: skip


def test_transactions_are_ended_only_by_those_who_may_publish_their_topic(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        mine, other = await half_message(guarded, "orders"), await half_message(guarded, "bills")
        end = Code.END_TRANSACTION
        assert (await guarded.ask("outsider", end, mine)).code == NO_PERMISSION
        assert (await guarded.ask("worker", end, {**other, "topic": "orders"})).code == NO_PERMISSION
        assert (await guarded.ask("worker", end, mine)).code == 0

    run(tmp_path, story)


def test_half_messages_are_shown_only_to_producers_who_may_publish_their_topic(tmp_path: Path) -> None:
    """Anybody can join a producer group by a heartbeat; the check of a transaction carries the whole message."""

    async def story(guarded: Guarded) -> None:
        await half_message(guarded, "orders")
        asked: list[str] = []
        for account in ("outsider", "worker"):
            client = guarded.client(account)

            def check(connection: object, command: Command, account: str = account) -> None:
                asked.append(account)

            client.handlers[Code.CHECK_TRANSACTION_STATE] = check
            beat = encode_heartbeat(Heartbeat(client_id=account, producer_groups=("producers",)))
            assert (await guarded.ask(account, Code.HEART_BEAT, {}, beat)).code == 0
        # Producers are asked in turn: four questions would include the outsider. Each check renews the half message.
        for turn in range(1, 5):
            await until(
                lambda turn=turn: guarded.broker.services.transactions.asked >= turn, "the producers to be asked"
            )
            await guarded.broker.services.transactions.check()
        for account in ("outsider", "worker"):  # an answer that comes after the questions proves that they arrived
            await guarded.ask(account, Code.GET_BROKER_RUNTIME_INFO)
        assert set(asked) == {"worker"}

    run(tmp_path, story, transactionTimeOut="1", transactionCheckInterval="100")


def test_a_client_id_in_use_is_not_taken_over_by_another_account(tmp_path: Path) -> None:
    """Whoever holds it is sent the replies that are meant for it."""

    async def story(guarded: Guarded) -> None:
        beat = encode_heartbeat(Heartbeat(client_id="10.0.0.1@77", producer_groups=("producers",)))
        assert (await guarded.ask("worker", Code.HEART_BEAT, {}, beat)).code == 0
        refused = await guarded.ask("outsider", Code.HEART_BEAT, {}, beat)
        assert refused.code == NO_PERMISSION
        assert "another account" in (refused.remark or "")

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("group", "topic", "code"),
    [("workers", "orders", 0), ("workers", "%RETRY%workers", 0), ("others", "orders", 16), ("workers", "bills", 16)],
)
def test_a_heartbeat_subscribes_only_to_what_the_account_may_read(
    tmp_path: Path, group: str, topic: str, code: int
) -> None:
    async def story(guarded: Guarded) -> None:
        consumer = ConsumerGroupInfo(group=group, subscriptions=(Subscription(topic=topic),))
        beat = encode_heartbeat(Heartbeat(client_id="c", consumers=(consumer,)))
        assert (await guarded.ask("worker", Code.HEART_BEAT, {}, beat)).code == code

    run(tmp_path, story)
