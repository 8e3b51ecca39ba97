"""Access control: who signed a request, and what that account may do. RocketMQ 4.x's plain ACL.

A request from a globally white-listed address passes. Otherwise its access key must be an account's, and either come
from that account's own white-listed address or carry a valid signature. An admin account may do everything; others may
use the topics (PUB, SUB) and groups (SUB) their permissions name, and no administrative request. `AccessControl` is the
`authenticate` hook of a RemotingServer; every refusal is NO_PERMISSION with the reason.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tandemq.codec.acl import ACCESS_KEY, SIGNATURE, is_signed_by
from tandemq.codec.codes import RequestCode, ResponseCode, code_name
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import decode_heartbeat
from tandemq.codec.send_header import SHORT_CODES
from tandemq.errors import ConfigError, ReplyError
from tandemq.model.topic import DLQ_PREFIX, RETRY_PREFIX
from tandemq.remoting import yaml_subset
from tandemq.remoting.connection import Connection

log = logging.getLogger("tandemq.remoting")

PUB, SUB, DENY = 1, 2, 0
_PERMISSIONS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "ANY": PUB | SUB}
_KEY_LENGTH_MIN = 6

_Code = RequestCode
ADMIN_CODES = frozenset(
    {
        _Code.UPDATE_AND_CREATE_TOPIC, _Code.UPDATE_AND_CREATE_TOPIC_LIST, _Code.DELETE_TOPIC_IN_BROKER,
        _Code.UPDATE_BROKER_CONFIG, _Code.GET_BROKER_CONFIG, _Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        _Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, _Code.DELETE_SUBSCRIPTIONGROUP,
        _Code.INVOKE_BROKER_TO_RESET_OFFSET, _Code.CLONE_GROUP_OFFSET, _Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        _Code.CLEAN_UNUSED_TOPIC, _Code.DELETE_EXPIRED_COMMITLOG, _Code.RESUME_CHECK_HALF_MESSAGE,
        _Code.UPDATE_AND_GET_GROUP_FORBIDDEN, _Code.SET_MESSAGE_REQUEST_MODE, _Code.CONSUME_MESSAGE_DIRECTLY,
        _Code.RESET_MASTER_FLUSH_OFFSET, _Code.PUT_KV_CONFIG, _Code.DELETE_KV_CONFIG, _Code.REGISTER_BROKER,
        _Code.UNREGISTER_BROKER, _Code.REGISTER_TOPIC_IN_NAMESRV, _Code.DELETE_TOPIC_IN_NAMESRV,
        _Code.WIPE_WRITE_PERM_OF_BROKER, _Code.ADD_WRITE_PERM_OF_BROKER, _Code.UPDATE_NAMESRV_CONFIG,
        _Code.GET_NAMESRV_CONFIG, _Code.GET_ALL_CONSUMER_OFFSET, _Code.GET_ALL_DELAY_OFFSET,
    }
)  # fmt: skip
"""Requests that change or reveal more than one's own topics and groups; codes from 900 up are brokers' own."""

_FIRST_BROKER_CODE = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One entry of `accounts`. Its secret is never logged or shown."""

    access_key: str
    secret_key: str
    admin: bool = False
    white_addresses: tuple[str, ...] = ()
    default_topic_perm: int = DENY
    default_group_perm: int = DENY
    topic_perms: Mapping[str, int]
    group_perms: Mapping[str, int]

    def __repr__(self) -> str:
        return f"Account({self.access_key!r}, admin={self.admin})"

    def may(self, kind: str, name: str, needed: int) -> bool:
        if self.admin:
            return True
        if kind == "group":
            held = self.group_perms.get(name, self.default_group_perm)
        else:
            held = self.topic_perms.get(name, self.default_topic_perm)
        return held & needed == needed


class AccessControl:
    """The hook: `RemotingServer(..., authenticate=AccessControl.from_text(text, "plain_acl.yml"))`."""

    def __init__(self, accounts: Iterable[Account], white_addresses: Iterable[str] = ()) -> None:
        self._accounts = {account.access_key: account for account in accounts}
        self._is_white = address_matcher(white_addresses)
        self._is_white_for = {a.access_key: address_matcher(a.white_addresses) for a in self._accounts.values()}

    @classmethod
    def from_text(cls, text: str, name: str) -> "AccessControl":
        """From a plain_acl.yml; ConfigError names the account and field that is wrong."""
        document = yaml_subset.parse(text, name)
        if not isinstance(document, dict) or not isinstance(document.get("accounts"), list):
            raise ConfigError(f"{name}: a list `accounts` is expected, as in RocketMQ's plain_acl.yml")
        accounts = [_account(entry, name, number) for number, entry in enumerate(document["accounts"], 1)]
        keys = [account.access_key for account in accounts]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise ConfigError(f"{name}: accessKey {twice!r} is there twice")
        return cls(accounts, _texts(document.get("globalWhiteRemoteAddresses"), name, "globalWhiteRemoteAddresses"))

    def __call__(self, connection: Connection, command: Command) -> None:
        self.check(connection.peer.rpartition(":")[0].strip("[]"), command)

    def check(self, host: str, command: Command) -> None:
        """ReplyError(NO_PERMISSION) unless this request from this host is allowed."""
        if self._is_white(host):
            return
        key = command.ext.get(ACCESS_KEY, "")
        account = self._accounts.get(key)
        if account is None:
            raise _refusal(host, command, f"no account for AccessKey {key[:40]!r}" if key else "no AccessKey given")
        if not self._is_white_for[key](host):
            if SIGNATURE not in command.ext:
                raise _refusal(host, command, "no Signature given")
            if not is_signed_by(command.ext, command.body, account.secret_key):
                raise _refusal(host, command, f"the Signature of {key!r} does not fit: check its secret key")
        if account.admin:
            return
        if command.code in ADMIN_CODES or command.code >= _FIRST_BROKER_CODE:
            raise _refusal(host, command, f"{key!r} is no admin account, {code_name(command.code)} needs one")
        for kind, name, needed in resources(command):
            if not account.may(kind, name, needed):
                wanted = "PUB" if needed == PUB else "SUB"
                raise _refusal(host, command, f"{key!r} has no {wanted} permission for {kind} {name[:255]!r}")


def resources(command: Command) -> list[tuple[str, str, int]]:
    """(topic or group, its name, permission needed) of everything a request touches."""
    ext, code = command.ext, command.code
    found: list[tuple[str, str, int]] = []
    if code in (_Code.SEND_MESSAGE, _Code.SEND_REPLY_MESSAGE) or code in SHORT_CODES:
        found.append(_topic(ext.get("b" if code in SHORT_CODES else "topic", ""), PUB))
    elif code == _Code.CONSUMER_SEND_MSG_BACK:
        found.append(("group", ext.get("group", ""), SUB))
    elif code in (
        _Code.PULL_MESSAGE,
        _Code.LITE_PULL_MESSAGE,
        _Code.UPDATE_CONSUMER_OFFSET,
        _Code.QUERY_CONSUMER_OFFSET,
    ):
        found += [_topic(ext.get("topic", ""), SUB), ("group", ext.get("consumerGroup", ""), SUB)]
    elif code in (_Code.QUERY_MESSAGE, _Code.VIEW_MESSAGE_BY_ID):
        if ext.get("topic"):
            found.append(_topic(ext["topic"], SUB))
    elif code == _Code.GET_CONSUMER_LIST_BY_GROUP or (code == _Code.UNREGISTER_CLIENT and ext.get("consumerGroup")):
        found.append(("group", ext.get("consumerGroup", ""), SUB))
    elif code == _Code.HEART_BEAT:
        for consumer in decode_heartbeat(command.body).consumers:
            found.append(("group", consumer.group, SUB))
            found += [_topic(subscription.topic, SUB) for subscription in consumer.subscriptions]
    return found


def _topic(name: str, needed: int) -> tuple[str, str, int]:
    """Retry and dead-letter topics belong to their group: who may consume in it may use them."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return "group", name.removeprefix(prefix), SUB
    return "topic", name, needed


def _refusal(host: str, command: Command, reason: str) -> ReplyError:
    log.warning("request refused code=%s from=%s reason=%r", code_name(command.code), host, reason)
    return ReplyError(ResponseCode.NO_PERMISSION, f"access refused: {reason}")


# The file -------------------------------------------------------------------------------------------------------------

_ACCOUNT_FIELDS = frozenset(
    {
        "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
        "groupPerms",
    }
)  # fmt: skip


def _account(entry: Any, name: str, number: int) -> Account:
    where = f"{name}: account {number}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: `accessKey: ...` and its other fields expected")
    unknown = sorted(set(entry) - _ACCOUNT_FIELDS)
    if unknown:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_ACCOUNT_FIELDS))}")
    keys = {}
    for field in ("accessKey", "secretKey"):
        keys[field] = str(entry.get(field) or "")
        if len(keys[field]) < _KEY_LENGTH_MIN:
            raise ConfigError(f"{where}: {field} needs at least {_KEY_LENGTH_MIN} characters")
    admin = entry.get("admin") or False
    if not isinstance(admin, bool):
        raise ConfigError(f"{where}: admin={admin!r}: true or false expected")
    return Account(
        access_key=keys["accessKey"],
        secret_key=keys["secretKey"],
        admin=admin,
        white_addresses=_texts(entry.get("whiteRemoteAddress"), where, "whiteRemoteAddress"),
        default_topic_perm=_permission(entry.get("defaultTopicPerm") or "DENY", where),
        default_group_perm=_permission(entry.get("defaultGroupPerm") or "DENY", where),
        topic_perms=_permissions(entry.get("topicPerms"), where, "topicPerms"),
        group_perms=_permissions(entry.get("groupPerms"), where, "groupPerms"),
    )


def _texts(value: Any, where: str, field: str) -> tuple[str, ...]:
    if value in (None, ""):
        return ()
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{where}: {field}: a text or a list of texts expected")
    return tuple(items)


def _permissions(value: Any, where: str, field: str) -> dict[str, int]:
    found = {}
    for item in _texts(value, where, field):
        name, separator, permission = item.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{where}: {field}: {item!r}: `name=PUB|SUB` expected")
        found[name.strip()] = _permission(permission.strip(), where)
    return found


def _permission(text: Any, where: str) -> int:
    found = _PERMISSIONS.get(str(text).replace(" ", "").upper())
    if found is None:
        raise ConfigError(f"{where}: permission {text!r}: one of DENY, PUB, SUB, PUB|SUB expected")
    return found


# Addresses ------------------------------------------------------------------------------------------------------------

_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})\Z")


def address_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a host is in `10.0.0.*`, `10.0.1-20.*`, `10.0.0.{1,2}`, `10.0.0.1,10.0.0.2`, `*` or is named exactly."""
    choices = [_address_pattern(one) for pattern in patterns for one in _split_list(pattern)]
    return lambda host: any(fits(host) for fits in choices)


def _split_list(pattern: str) -> list[str]:
    """Commas separate addresses, except inside braces, whose members are multiplied out."""
    open_, close = pattern.find("{"), pattern.find("}")
    if 0 <= open_ < close:
        head, tail = pattern[:open_], pattern[close + 1 :]
        return [head + member.strip() + tail for member in pattern[open_ + 1 : close].split(",")]
    return [one.strip() for one in pattern.split(",") if one.strip()]


def _address_pattern(pattern: str) -> Callable[[str], bool]:
    if pattern in ("*", "*.*.*.*"):
        return lambda _: True
    if not any(mark in pattern for mark in "*-"):
        return lambda host: host == pattern
    parts = [_octet(part, pattern) for part in pattern.split(".")]

    def fits(host: str) -> bool:
        octets = host.split(".")
        if len(octets) != 4 or not all(octet.isdecimal() for octet in octets):
            return False
        return all(int(octet) in part for octet, part in zip(octets, parts, strict=False))

    if len(parts) > 4 or (len(parts) < 4 and not pattern.endswith("*")):
        raise ConfigError(f"address {pattern!r}: four parts, or fewer that end in *, expected")
    return fits


def _octet(part: str, pattern: str) -> range:
    if part == "*":
        return range(256)
    between = _RANGE.match(part)
    if between:
        return range(int(between[1]), int(between[2]) + 1)
    if part.isdecimal() and int(part) < 256:
        return range(int(part), int(part) + 1)
    raise ConfigError(f"address {pattern!r}: {part!r} is no number, range or *")
