"""ACL 2.0 at run time: users and policies created, changed, deleted, listed (3001–3010), and told to slaves.

Bodies and answers have upstream's shapes (AdminBrokerProcessor, UserInfo, AclInfo), because its own `mqadmin` writes
and reads them. Two things differ: passwords are told to super users only, and whatever does not exist is said by its
name.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tandemq.broker.replies import text_field
from tandemq.broker.tables.snapshots import SnapshotFile
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.errors import ReplyError
from tandemq.remoting.access.needs import GET, UPDATE, Caller, is_admin, needs, on_cluster
from tandemq.remoting.access.users import (
    SUPER,
    AccessProblem,
    Entry,
    Policies,
    User,
    UserTable,
    entry_from_json,
    entry_json,
)
from tandemq.remoting.beside import Beside
from tandemq.remoting.connection import Connection
from tandemq.remoting.dispatch import Handler

SUBJECT_PREFIX = "User:"
LISTED_MAX = 2_000
"""Users or subjects of one answer; the remark says when there are more."""


class UserHandlers:
    def __init__(
        self,
        users: UserTable | None,
        snapshot: SnapshotFile,
        *,
        is_slave: Callable[[], bool],
        is_taken: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._table = users
        """None where no access is controlled: whatever was written then would come into force unseen, later."""
        self._snapshot = snapshot
        self._is_slave = is_slave
        self._is_taken = is_taken
        """Whether plain_acl.yml has an account of this name."""
        self._beside = Beside()

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
            OperatorCode.GET_USERS: self.everything,
        }

    # users

    @needs(on_cluster(UPDATE))
    async def create_user(self, connection: Connection, command: Command) -> bytes:
        name, told = self._user_told(command)
        if self._is_taken(name):
            raise ReplyError(ResponseCode.INVALID_PARAMETER, f"{name!r} is an account of plain_acl.yml")
        return await self._change(command, lambda table: table.create(name, *told))

    @needs(on_cluster(UPDATE))
    async def update_user(self, connection: Connection, command: Command) -> bytes:
        name, told = self._user_told(command)
        self._check_rank(command, name)
        return await self._change(command, lambda table: table.update(name, *told))

    @needs(on_cluster(UPDATE))
    async def delete_user(self, connection: Connection, command: Command) -> bytes:
        name = text_field(command.ext, "username")
        self._check_rank(command, name)
        return await self._change(command, lambda table: table.delete(name))

    @needs(on_cluster(GET), audited=True)
    def get_user(self, connection: Connection, command: Command) -> bytes:
        user = self._users.user(text_field(command.ext, "username"))
        body = fastjson.dumps(_user_json(user, command)) if user is not None else b""
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    @needs(on_cluster(GET), audited=True)
    async def list_users(self, connection: Connection, command: Command) -> bytes:
        held, part = self._users.held(), command.ext.get("filter", "")

        def made() -> bytes:
            found = held.users_named(part)
            return _listed(command, [_user_json(user, command) for user in found[:LISTED_MAX]], len(found))

        return await self._beside(made)

    # policies

    @needs(on_cluster(UPDATE), shows_body=True)
    async def put_acl(self, connection: Connection, command: Command) -> bytes:
        """Creates or changes: entries for resources that the user has none for are added, others are replaced."""
        subject, entries = await self._beside(_acl_told, bytes(command.body))
        name = _subject(subject or command.ext.get("subject", ""))
        self._check_rank(command, name)
        if isinstance(entries, AccessProblem):
            raise ReplyError(ResponseCode.INVALID_PARAMETER, str(entries))
        return await self._change(command, lambda table: table.put_entries(name, entries))

    @needs(on_cluster(UPDATE))
    async def delete_acl(self, connection: Connection, command: Command) -> bytes:
        ext = command.ext
        name = _subject(ext.get("subject", ""))
        self._check_rank(command, name)
        policy, resource = ext.get("policyType", ""), ext.get("resource", "")
        return await self._change(command, lambda table: table.delete_entries(name, policy, resource))

    @needs(on_cluster(GET))
    async def get_acl(self, connection: Connection, command: Command) -> bytes:
        name = _subject(command.ext.get("subject", ""))
        try:
            found = self._users.policies(name)
        except AccessProblem as error:
            raise ReplyError(ResponseCode.NO_PERMISSION, str(error)) from None
        body = await self._beside(lambda: fastjson.dumps(_acl_json(name, found))) if found else b""
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    @needs(on_cluster(GET))
    async def list_acls(self, connection: Connection, command: Command) -> bytes:
        held, ext = self._users.held(), command.ext

        def made() -> bytes:
            found = held.all_policies(ext.get("subjectFilter", ""), ext.get("resourceFilter", ""))
            return _listed(command, [_acl_json(name, policies) for name, policies in found[:LISTED_MAX]], len(found))

        return await self._beside(made)

    # slaves

    @needs(on_cluster(UPDATE), audited=False)
    async def everything(self, connection: Connection, command: Command) -> bytes:
        """Answers slaves with the whole table and its passwords.

        Only an account that could change everything may have it.
        """
        if not is_admin(command):
            raise ReplyError(ResponseCode.NO_PERMISSION, "access refused: passwords are for admins")
        held = self._users.held()
        body = await self._beside(lambda: fastjson.dumps(held.snapshot()))
        return encode_response(command.opaque, ResponseCode.SUCCESS, None, None, body)

    @property
    def _users(self) -> UserTable:
        if self._table is None:
            raise ReplyError(
                ResponseCode.SYSTEM_ERROR, "access is not controlled here: set authenticationEnabled or aclEnable first"
            )
        return self._table

    async def _change(self, command: Command, change: Callable[[UserTable], None]) -> bytes:
        table = self._users
        if self._is_slave():
            raise ReplyError(ResponseCode.SYSTEM_ERROR, "a slave's users follow its master's: ask the master")
        try:
            change(table)
        except AccessProblem as error:
            raise ReplyError(ResponseCode.NO_PERMISSION, str(error)) from None  # upstream's code for all of them
        await self._snapshot.saved()
        return encode_response(command.opaque, ResponseCode.SUCCESS)

    def _user_told(self, command: Command) -> tuple[str, tuple[str, str, str]]:
        name = text_field(command.ext, "username")
        told = bodies.load_request(command.body, "userInfo")
        text = bodies.text_of
        kind = text(told, "userType")
        if kind.lower() == SUPER.lower() and not is_admin(command):
            raise ReplyError(ResponseCode.NO_PERMISSION, "access refused: only a super user makes super users")
        return name, (text(told, "password"), kind, text(told, "userStatus"))

    def _check_rank(self, command: Command, name: str) -> None:
        """Lets a normal user with the cluster's permission manage other normal users, not itself and no super user."""
        if is_admin(command):
            return
        user = self._users.user(name)
        caller: Caller = command.caller
        if (user is not None and user.kind == SUPER) or caller.name == name:
            raise ReplyError(ResponseCode.NO_PERMISSION, f"access refused: only a super user may change {name!r}")


def _subject(text: str) -> str:
    """Returns the user's name in a subject, which is written `User:name`."""
    kind, separator, name = text.partition(":")
    if not separator or kind.strip().lower() != "user" or not name:
        raise ReplyError(ResponseCode.INVALID_PARAMETER, f"subject {text[:80]!r}: User:NAME expected")
    return name


def _acl_told(body: bytes) -> tuple[str, dict[str, list[Entry]] | AccessProblem]:
    """Returns subject and entries of a request, or what is wrong with the entries: thousands of addresses take long."""
    told = bodies.load_request(body, "aclInfo")
    subject = bodies.text_of(told, "subject")
    try:
        return subject, _entries(told)
    except AccessProblem as error:
        return subject, error


def _entries(told: Mapping[str, Any]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for value in bodies.list_of(told.get("policies"), "policies"):
        policy = bodies.object_of(value, "policy")
        entries = [entry_from_json(entry) for entry in bodies.list_of(policy.get("entries"), "entries")]
        found.setdefault(bodies.text_of(policy, "policyType"), []).extend(entries)
    if not any(found.values()):
        raise AccessProblem("the request has no policy entry")
    return found


def _user_json(user: User, command: Command) -> dict[str, Any]:
    return {
        "password": user.password if is_admin(command) else None,
        "userStatus": user.status,
        "userType": user.kind,
        "username": user.name,
    }


def _acl_json(name: str, policies: Policies) -> dict[str, Any]:
    return {
        "policies": [
            {"entries": [entry_json(entry) for entry in entries.values()], "policyType": policy}
            for policy, entries in policies.items()
        ],
        "subject": SUBJECT_PREFIX + name,
    }


def _listed(command: Command, shown: list[dict[str, Any]], count: int) -> bytes:
    remark = f"{len(shown)} of {count} are shown: name a filter" if count > len(shown) else None
    body = fastjson.dumps(shown) if shown else b""
    return encode_response(command.opaque, ResponseCode.SUCCESS, remark, None, body)
