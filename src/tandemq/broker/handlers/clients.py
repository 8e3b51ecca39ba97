"""Clients come and go: HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG.

A consumer group whose members or subscriptions change is told at once (NOTIFY_CONSUMER_IDS_CHANGED), also when a
connection closes: the Go client never unregisters.
"""

import logging
from collections.abc import Iterable

from tandemq.broker.filters import message_filter
from tandemq.broker.groups import GroupTable
from tandemq.broker.live_config import LiveConfig
from tandemq.broker.members import Members
from tandemq.broker.replies import text_field
from tandemq.broker.subscriptions import BadExpression, Subscription, parse_subscription
from tandemq.broker.topics import UNIT_SUB_TOPIC, TopicTable, TopicTableFull
from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.bodies import load_object
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.codec.heartbeat import ConsumerGroupInfo, decode_heartbeat, subscription_of
from tandemq.errors import ConnectionLost, ReplyError
from tandemq.model.topic import RETRY_PREFIX, topic_name_problem
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

log = logging.getLogger(__name__)

CLIENT_ID_LENGTH_MAX = 512
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

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(self, connection: Connection, command: Command) -> bytes:
        told = decode_heartbeat(command.body)
        if not told.client_id or len(told.client_id) > CLIENT_ID_LENGTH_MAX:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR,
                f"clientID has {len(told.client_id)} characters: from 1 to {CLIENT_ID_LENGTH_MAX} expected",
            )
        now = self._clock.monotonic()
        for group in told.producer_groups:
            self._members.register_producer(group, connection, told.client_id, command.language, command.version, now)
        # A V1 heartbeat (no fingerprint) is always told to send everything, which it does anyway.
        changed, resend = set(), told.fingerprint == 0
        for consumer in told.consumers:
            known = _knows_subscriptions(connection, consumer.group, told.fingerprint, told.without_subscriptions)
            resend = resend or not known
            if self._register_consumer(
                connection, command, told.client_id, consumer, now, with_subscriptions=not told.without_subscriptions
            ):
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
        *,
        with_subscriptions: bool,
    ) -> bool:
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
            subscriptions=list(_subscriptions(consumer)) if with_subscriptions else None,
        )

    def _create_retry_topic(self, consumer: ConsumerGroupInfo, queues: int) -> None:
        name = RETRY_PREFIX + consumer.group
        if name in self._topics or topic_name_problem(name) is not None:
            return
        try:
            self._topics.create_internal(name, queues, sys_flag=UNIT_SUB_TOPIC if consumer.unit_mode else 0)
        except TopicTableFull as error:
            log.warning("no retry topic for group %s: %s", consumer.group, error)

    def unregister(self, connection: Connection, command: Command) -> bytes:
        if producer_group := command.ext.get("producerGroup"):
            self._members.unregister_producer(producer_group, connection)
        if (consumer_group := command.ext.get("consumerGroup")) and self._members.unregister_consumer(
            consumer_group, connection
        ):
            self.notify((consumer_group,))
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def consumer_list(self, connection: Connection, command: Command) -> bytes:
        group = text_field(command.ext, "consumerGroup")
        found = self._members.consumer_group(group)
        if found is None:
            raise ReplyError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group[:120]}")
        body = fastjson.dumps({"consumerIdList": found.client_ids()})
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    def check_config(self, connection: Connection, command: Command) -> bytes:
        """Whether a non-tag filter would be accepted; asked by Java before it starts consuming with one."""
        wanted = subscription_of(load_object(command.body, "checkClientRequestBody").get("subscriptionData"))
        try:
            parsed = parse_subscription(wanted.topic, wanted.expression, wanted.expression_type, wanted.version)
        except BadExpression as error:
            raise ReplyError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None
        if not parsed.is_tag:
            message_filter(parsed, property_filter=self._live.broker.enable_property_filter)
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    # changes --------------------------------------------------------------------------------------------------------

    def dropped(self, connection: Connection) -> None:
        """A connection closed."""
        self.notify(self._members.drop_connection(connection))

    def expire(self) -> None:
        """Forgets clients that stopped sending heartbeats, and closes what is left of them."""
        age_max = self._live.broker.channel_expired_ms / 1000
        changed, stale = self._members.expire(self._clock.monotonic(), age_max)
        for connection in stale:
            connection.close(f"no heartbeat for {age_max:.0f} s")
        self.notify(changed)

    def notify(self, groups: Iterable[str]) -> None:
        """Tells every member of these groups to rebalance."""
        if not self._live.broker.notify_consumer_ids_changed_enable:
            return
        for name in groups:
            config, live = self._groups.get(name), self._members.consumer_group(name)
            if live is None or (config is not None and not config.notify_consumer_ids_changed):
                continue
            if live.is_broadcasting:
                continue
            for member in live.members.values():
                try:
                    member.connection.send_oneway(
                        Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name})
                    )
                except ConnectionLost:
                    continue  # its own loss is on the way and will notify again


def _subscriptions(consumer: ConsumerGroupInfo) -> Iterable[Subscription]:
    for told in consumer.subscriptions:
        try:
            yield parse_subscription(told.topic, told.expression, told.expression_type, told.version)
        except BadExpression as error:
            # A heartbeat is not refused for one bad expression; a pull of that topic finds no subscription.
            log.warning("group %s topic %s: %s", consumer.group, told.topic[:120], error)


def _knows_subscriptions(connection: Connection, group: str, fingerprint: int, without: bool) -> bool:
    """Heartbeat V2: whether the fingerprint is the one whose subscriptions we were sent in full."""
    if fingerprint == 0:
        return False
    fingerprints: dict[str, int] = connection.state.setdefault(_FINGERPRINTS, {})
    if not without:
        if len(fingerprints) < 4096:
            fingerprints[group] = fingerprint
        return True
    return fingerprints.get(group) == fingerprint
