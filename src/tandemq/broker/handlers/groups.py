"""Subscription group administration: create, update, delete, list (200, 225, 207, 201, 352)."""

import logging

from tandemq.broker.handlers.table_answers import table_for_slave
from tandemq.broker.handlers.topics import LIST_COUNT_MAX, page_of
from tandemq.broker.long_answers import LongAnswer, quoted_member
from tandemq.broker.replies import bool_field, text_field
from tandemq.broker.tables.groups import GroupTable
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.broker.tables.table_file import TableFile
from tandemq.clock import Clock
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ReplyError
from tandemq.model.topic import SubscriptionGroupConfig, group_name_problem
from tandemq.remoting.access.needs import CREATE, DELETE, GET, UPDATE, group_need, needs, on_cluster, on_group, require
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler
from tandemq.replication.metadata import SINCE

log = logging.getLogger(__name__)


class GroupHandlers:
    """What administrators and slaves ask about groups."""

    def __init__(self, groups: GroupTable, offsets: OffsetTable, file: TableFile, clock: Clock) -> None:
        self._clock = clock
        self._groups = groups
        self._offsets = offsets
        self._file = file

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.one,
        }

    @needs(audited=True, shows_body=True)
    async def update(self, connection: Connection, command: Command) -> bytes:
        config = bodies.group_config_of(bodies.load_request(command.body, "subscriptionGroupConfig"))
        log.info("group %s updated by %s", config.name[:130], connection.peer)
        return await self._put(command, [config])

    @needs(audited=True, shows_body=True)
    async def update_list(self, connection: Connection, command: Command) -> bytes:
        told = bodies.load_request(command.body, "groups").get("groupConfigList")
        told = bodies.list_of(told, "groupConfigList", LIST_COUNT_MAX)
        if not told:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, "groupConfigList is empty")
        return await self._put(command, [bodies.group_config_of(item) for item in told])

    async def _put(self, command: Command, configs: list[SubscriptionGroupConfig]) -> bytes:
        require(command, *(group_need(config.name, CREATE | UPDATE) for config in configs))
        try:
            self._groups.put_all(configs)
        except ValueError as error:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        await self._file.saved()
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_group("groupName", DELETE))
    async def delete(self, connection: Connection, command: Command) -> bytes:
        name = text_field(command.ext, "groupName")
        if (problem := group_name_problem(name)) is not None:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, problem)
        if self._groups.is_system(name):
            raise ReplyError(ResponseCode.INVALID_PARAMETER, f"group {name} belongs to the broker itself")
        log.info("group %s deleted by %s", name, connection.peer)
        self._groups.delete(name)
        if bool_field(command.ext, "cleanOffset"):
            self._offsets.remove_group(name)
        await self._file.saved()
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    @needs(on_cluster(GET))
    async def all(self, connection: Connection, command: Command) -> bytes:
        if SINCE in command.ext:
            return await table_for_slave(self._groups, command, clock=self._clock)
        table, answer = dict(self._groups.all()), LongAnswer(self._clock)
        names = page_of(sorted(table), command.ext, "groupSeq", "maxGroupNum", self._groups.version)
        head = {**self._groups.members(), "forbiddenTable": self._groups.all_forbidden()}
        groups = await answer.joined(quoted_member(name, bodies.group_config_json(table[name])) for name in names)
        body = b'%b,"subscriptionGroupTable":{%b}}' % (fastjson.dumps(head)[:-1], groups)
        return answer.encoded(command, body, {"totalGroupNum": str(len(table))})

    @needs(on_group("group", GET))
    def one(self, connection: Connection, command: Command) -> bytes:
        name = text_field(command.ext, "group")
        config = self._groups.find_or_create(name)
        if config is None:
            raise ReplyError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name[:130]}")
        body = fastjson.dumps(bodies.group_config_json(config))
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)
