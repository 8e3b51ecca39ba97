"""Clients come and go: HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG.

A consumer group whose members or subscriptions change is told (`group_notices`), also when a connection closes: the Go
client never unregisters.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Iterable

from tandemq.broker.filters import message_filter
from tandemq.broker.group_notices import GroupNotices
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.replies import text_field
from tandemq.broker.subscriptions import BadExpression, Subscription, parse_subscription
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.members import Members
from tandemq.broker.tables.topics import UNIT_SUB_TOPIC, TopicTable, TopicTableFull
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.bodies import load_request
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, decode_heartbeat, subscription_of
from tandemq.errors import ConnectionLost, ReplyError
from tandemq.model.topic import RETRY_PREFIX, topic_name_problem
from tandemq.remoting.access.needs import GET, SUB, group_need, needs, on_group, require, topic_need
from tandemq.remoting.beside import Beside
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

log = logging.getLogger(__name__)

CLIENT_ID_LENGTH_MAX = 512
LARGE_BODY_MIN = 32 * 1024
"""Heartbeats of more bytes are read beside the loop."""
EXPIRED_IN_TURN = 128
"""Silent consumers, and as many producers, that are dropped in one turn of the loop."""
GROUPS_PER_TURN = 64
"""Consumer groups of one heartbeat that are taken in before others get their turn."""
_FINGERPRINTS = "heartbeat fingerprints"
"""In a connection's state: group -> fingerprint of the subscriptions it last sent in full (heartbeat V2)."""


class ClientHandlers:
    """The registry's face to the wire."""

    def __init__(
        self, topics: TopicTable, groups: GroupTable, members: Members, live: LiveConfig, clock: Clock
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._members = members
        self._live = live
        self._clock = clock
        self._notices = GroupNotices(self._to_tell)
        self._beside = Beside()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    @needs()
    def heartbeat(self, connection: Connection, command: Command) -> bytes | Awaitable[bytes]:
        if len(command.body) <= LARGE_BODY_MIN:
            told = decode_heartbeat(command.body)
            if len(told.consumers) <= GROUPS_PER_TURN:
                return self._take(connection, command, told, parsed_subscriptions(told))
        body = bytes(command.body)

        async def later() -> bytes:
            told, parsed = await self._beside(_read, body)
            if not connection.is_open:
                raise ConnectionLost("the client went while its heartbeat was read")
            # The groups are taken in a few at a time: the first time, each is a group and a topic to create.
            answer = b""
            for start in range(0, max(1, len(told.consumers)), GROUPS_PER_TURN):
                if start:
                    await asyncio.sleep(0)
                chosen = slice(start, start + GROUPS_PER_TURN)
                part = dataclasses.replace(
                    told, consumers=told.consumers[chosen], producer_groups=() if start else told.producer_groups
                )
                answer = self._take(connection, command, part, parsed[chosen])
            return answer

        return later()

    def _take(
        self, connection: Connection, command: Command, told: Heartbeat, parsed: list[list[Subscription]]
    ) -> bytes:
        if not told.client_id or len(told.client_id) > CLIENT_ID_LENGTH_MAX:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"clientID has {len(told.client_id)} characters: from 1 to {CLIENT_ID_LENGTH_MAX} expected",
            )
        for consumer in told.consumers:
            topics = (topic_need(subscription.topic, SUB) for subscription in consumer.subscriptions)
            require(command, group_need(consumer.group, SUB), *topics)
        if not self._members.claim(told.client_id, connection, connection.account):
            raise ReplyError(
                ResponseCode.NO_PERMISSION, f"clientID {told.client_id!r} belongs to a client of another account"
            )
        now = self._clock.monotonic()
        for group in told.producer_groups:
            self._members.register_producer(group, connection, told.client_id, command.language, command.version, now)
        # A V1 heartbeat (no fingerprint) is always told to send everything, which it does anyway.
        changed, resend = set(), told.fingerprint == 0
        for consumer, subscriptions in zip(told.consumers, parsed, strict=True):
            known = _knows_subscriptions(connection, consumer.group, told.fingerprint, told.without_subscriptions)
            resend = resend or not known
            given = None if told.without_subscriptions else subscriptions
            if self._register_consumer(connection, command, told.client_id, consumer, now, given):
                changed.add(consumer.group)
        self.notify(changed)
        answer = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if resend else "false"}
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, answer)

    def _register_consumer(
        self,
        connection: Connection,
        command: Command,
        client_id: str,
        consumer: ConsumerGroupInfo,
        now: float,
        subscriptions: list[Subscription] | None,
    ) -> bool:
        if not self._members.has_room(consumer.group, connection, subscriptions):
            raise ReplyError(
                ResponseCode.SYSTEM_BUSY,
                f"group {consumer.group[:120]}: this connection has too many groups, or the subscriptions of all "
                f"clients take {self._members.subscriptions_size} bytes already",
            )
        config = self._groups.find_or_create(consumer.group)
        if config is not None and config.retry_queues > 0:
            self._create_retry_topic(consumer, config.retry_queues)
        return self._members.register_consumer(
            consumer.group,
            connection,
            client_id,
            command.language,
            command.version,
            now,
            consume_type=consumer.consume_type,
            message_model=consumer.message_model,
            consume_from_where=consumer.consume_from,
            subscriptions=subscriptions,
        )

    def _create_retry_topic(self, consumer: ConsumerGroupInfo, queues: int) -> None:
        name = RETRY_PREFIX + consumer.group
        if name in self._topics or topic_name_problem(name) is not None:
            return
        try:
            self._topics.create_internal(name, queues, sys_flag=UNIT_SUB_TOPIC if consumer.unit_mode else 0)
        except TopicTableFull as error:
            log.warning("no retry topic for group %s: %s", consumer.group, error)

    @needs(on_group("consumerGroup", SUB, if_given=True))
    def unregister(self, connection: Connection, command: Command) -> bytes:
        if producer_group := command.ext.get("producerGroup"):
            self._members.unregister_producer(producer_group, connection)
        if (consumer_group := command.ext.get("consumerGroup")) and self._members.unregister_consumer(
            consumer_group, connection
        ):
            self.notify((consumer_group,))
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_group("consumerGroup", SUB | GET))
    def consumer_list(self, connection: Connection, command: Command) -> bytes:
        group = text_field(command.ext, "consumerGroup")
        found = self._members.consumer_group(group)
        if found is None:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group[:120]}")
        body = fastjson.dumps({"consumerIdList": found.client_ids()})
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    @needs()
    async def check_config(self, connection: Connection, command: Command) -> bytes:
        """Says whether a non-tag filter would be accepted; Java asks before it starts to consume with one."""
        wanted = subscription_of(load_request(command.body, "checkClientRequestBody").get("subscriptionData"))
        try:
            parsed = parse_subscription(wanted.topic, wanted.expression, wanted.expression_type, wanted.version)
        except BadExpression as error:
            raise ReplyError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        if not parsed.is_tag:
            await self._beside(message_filter, parsed, property_filter=self._live.broker.enable_property_filter)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    # changes --------------------------------------------------------------------------------------------------------

    def dropped(self, connection: Connection) -> None:
        """Unregisters everything that was on a connection that closed."""
        self.notify(self._members.drop_connection(connection))

    def expire(self) -> bool:
        """Forgets clients that stopped sending heartbeats, and closes what is left of them: some, in one turn of the
        loop. Returns whether to ask again."""
        age_max = self._live.broker.channel_expired_ms / 1000
        changed, stale, dropped = self._members.expire(self._clock.monotonic(), age_max, EXPIRED_IN_TURN)
        for connection in stale:
            connection.close(f"no heartbeat for {age_max:.0f} s")
        self.notify(changed)
        return dropped > 0

    def notify(self, groups: Iterable[str]) -> None:
        """Tells every member of these groups to rebalance."""
        if self._live.broker.notify_consumer_ids_changed_enable:
            self._notices.changed(groups)

    def _to_tell(self, group: str) -> Iterable[Connection]:
        """Returns the connections of a group that is told of changes."""
        config, live = self._groups.get(group), self._members.consumer_group(group)
        if live is None or live.is_broadcasting or (config is not None and not config.notify_consumer_ids_changed):
            return ()
        return live.members


def _read(body: bytes) -> tuple[Heartbeat, list[list[Subscription]]]:
    told = decode_heartbeat(body)
    return told, parsed_subscriptions(told)


def parsed_subscriptions(told: Heartbeat) -> list[list[Subscription]]:
    """Returns what each consumer group of a heartbeat wants."""
    return [list(_subscriptions(consumer)) for consumer in told.consumers]


def _subscriptions(consumer: ConsumerGroupInfo) -> Iterable[Subscription]:
    for told in consumer.subscriptions:
        try:
            yield parse_subscription(told.topic, told.expression, told.expression_type, told.version)
        except BadExpression as error:
            # A heartbeat is not refused for one bad expression; a pull of that topic finds no subscription.
            log.warning("group %s topic %s: %s", consumer.group, told.topic[:120], error)


def _knows_subscriptions(connection: Connection, group: str, fingerprint: int, without: bool) -> bool:
    """Returns whether the fingerprint (heartbeat V2) is the one whose subscriptions were sent in full."""
    if fingerprint == 0:
        return False
    fingerprints: dict[str, int] = connection.state.setdefault(_FINGERPRINTS, {})
    if not without:
        if len(fingerprints) < 4096:
            fingerprints[group] = fingerprint
        return True
    return fingerprints.get(group) == fingerprint
