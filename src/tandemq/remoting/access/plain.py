"""RocketMQ 4.x's accounts: plain_acl.yml, read again whenever the file changes.

An admin account may do everything. Others may use the topics (PUB, SUB) and groups (SUB) that their permissions name,
see what they may use, and nothing else: no cluster-wide request, no change of a topic or group.
"""

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tandemq.codec.acl import SigningKey
from tandemq.errors import ConfigError
from tandemq.model.topic import TRACE_TOPIC
from tandemq.remoting.access.addresses import address_matcher
from tandemq.remoting.access.needs import CLUSTER, GET, GROUP, PUB, SUB, Need

log = logging.getLogger("tandemq.remoting")

DENY = 0
FILE_SIZE_MAX = 1 << 20
_PERMISSIONS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "ANY": PUB | SUB}
_KEY_LENGTH_MIN = 6
_TYPED_TAGS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAccount:
    """One entry of `accounts`. Its secret is never logged or shown."""

    access_key: str
    signing_key: SigningKey
    admin: bool = False
    trusts: Callable[[str], bool] = lambda host: False
    """Whether requests from an address need no signature."""
    default_topic_perm: int = DENY
    default_group_perm: int = DENY
    topic_perms: Mapping[str, int] = field(default_factory=dict)
    group_perms: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        return self.admin

    @property
    def problem(self) -> str:
        """Returns why the account can't be used; these can."""
        return ""

    def may(self, need: Need, host: str) -> bool:
        """Returns whether the permissions allow one of the actions. Whoever may use a thing may look at it."""
        if self.admin:
            return True
        if need.kind == CLUSTER:
            return False
        if need.kind == GROUP:
            held = self.group_perms.get(need.name, self.default_group_perm) & SUB
        elif need.name == TRACE_TOPIC and not need.actions & PUB:
            held = self.topic_perms.get(need.name, DENY)  # traces tell about the messages of all accounts
        else:
            held = self.topic_perms.get(need.name, self.default_topic_perm)
        return bool(held & need.actions or (held and need.actions & GET))


@dataclass(frozen=True, slots=True)
class PlainAccounts:
    """Everything that one plain_acl.yml says."""

    by_key: Mapping[str, PlainAccount]
    trusts: Callable[[str], bool] = lambda host: False
    """Whether requests from an address need no account."""

    @classmethod
    def from_text(cls, text: str, name: str) -> "PlainAccounts":
        """Reads a plain_acl.yml; raises ConfigError with the account and the field that is wrong."""
        document = parse_yaml(text, name)
        if not isinstance(document, dict) or not isinstance(document.get("accounts"), list):
            raise ConfigError(f"{name}: a list `accounts` is expected, as in RocketMQ's plain_acl.yml")
        accounts: dict[str, PlainAccount] = {}
        for number, entry in enumerate(document["accounts"], 1):
            account = _account(entry, name, number)
            if account.access_key in accounts:
                raise ConfigError(f"{name}: accessKey {account.access_key!r} is given twice")
            accounts[account.access_key] = account
        white = _texts(document.get("globalWhiteRemoteAddresses"), name, "globalWhiteRemoteAddresses")
        return cls(accounts, address_matcher(white))


class PlainAclFile:
    """A plain_acl.yml on disk. A version of it that can't be read is reported, and the last good one stays in force."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self.accounts = self._read()

    def reload(self) -> bool:
        """Reads the file again if it changed; returns whether other accounts are in force now."""
        try:
            if self._stamp() == self._seen:
                return False
            self.accounts = self._read()
        except (ConfigError, OSError) as error:
            log.error("the accounts stay as they are: %s", error)
            return False
        log.info("accounts read again from %s: %d accounts", self.path, len(self.accounts.by_key))
        return True

    def _stamp(self) -> tuple[int, int, int]:
        status = self.path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> PlainAccounts:
        try:
            self._seen = self._stamp()
            if self._seen[1] > FILE_SIZE_MAX:
                raise ConfigError(f"aclFile={self.path}: {self._seen[1]} bytes, the limit is {FILE_SIZE_MAX}")
            text = self.path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"aclFile={self.path}: can't be read: {error}") from None
        return PlainAccounts.from_text(text, self.path.name)


# Accounts -------------------------------------------------------------------------------------------------------------

_ACCOUNT_FIELDS = frozenset(
    {
        "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms",
        "groupPerms",
    }
)  # fmt: skip


def _account(entry: Any, name: str, number: int) -> PlainAccount:
    where = f"{name}: account {number}"
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: `accessKey: ...` and its other fields expected")
    unknown = sorted(set(entry) - _ACCOUNT_FIELDS)
    if unknown:
        raise ConfigError(f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_ACCOUNT_FIELDS))}")
    keys = {}
    for key in ("accessKey", "secretKey"):
        keys[key] = str(entry.get(key) or "")
        if len(keys[key]) < _KEY_LENGTH_MIN:
            raise ConfigError(f"{where}: {key} needs at least {_KEY_LENGTH_MIN} characters")
    admin = entry.get("admin") or False
    if not isinstance(admin, bool):
        raise ConfigError(f"{where}: admin={admin!r}: true or false expected")
    return PlainAccount(
        access_key=keys["accessKey"],
        signing_key=SigningKey(keys["secretKey"]),
        admin=admin,
        trusts=address_matcher(_texts(entry.get("whiteRemoteAddress"), where, "whiteRemoteAddress")),
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


# The file -------------------------------------------------------------------------------------------------------------


class _PlainLoader(yaml.SafeLoader):
    """YAML in which only booleans and null have a type: a secret of digits stays the text that was written."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TYPED_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Refuses a key that is given twice; PyYAML itself would let the last one win."""
        names = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError("a key that is no text")
            if key.value in names:
                raise yaml.YAMLError(f"key {key.value!r} is given twice")
            names.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, name: str) -> Any:
    """Returns the dicts, lists and scalars of a YAML document; an empty one is an empty dict.

    Aliases are refused, because a few of them can stand for gigabytes; so is what no YAML reader understands.
    """
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, Loader=_PlainLoader)):
            raise ConfigError(f"{name}: aliases (*name) are not accepted; write the value out")
        document = yaml.load(text, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is no valid YAML: {' '.join(str(error).split()) or 'nested too deeply'}") from None
    return {} if document is None else document
