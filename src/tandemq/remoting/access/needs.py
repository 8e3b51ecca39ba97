"""What a request needs: declared beside the handler that answers it, by a decorator.

    @needs(on_topic("topic", SUB), on_group("consumerGroup", SUB))
    def pull(self, connection, command): ...

A need names a resource and the actions of which one must be allowed. Resources and actions are those of RocketMQ's
ACL 2.0. With access control on, a handler without a declaration answers nobody.

A handler that learns only later what a request touches, for example from the record it found, calls `require`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from tandemq.codec.command import Command
from tandemq.model.topic import DLQ_PREFIX, RETRY_PREFIX

PUB = 1
SUB = 2
CREATE = 4
UPDATE = 8
DELETE = 16
GET = 32
LIST = 64
ACTION_NAMES = {PUB: "Pub", SUB: "Sub", CREATE: "Create", UPDATE: "Update", DELETE: "Delete", GET: "Get", LIST: "List"}
"""The actions by the names that RocketMQ gives them. Combined with `|`, any one of them is enough."""
ALL_ACTIONS = PUB | SUB | CREATE | UPDATE | DELETE | GET | LIST
_CHANGES = CREATE | UPDATE | DELETE

TOPIC, GROUP, CLUSTER = "topic", "group", "cluster"

_RULE = "access_rule"


class Need(NamedTuple):
    """One resource that a request touches, and the actions of which one must be allowed on it."""

    kind: str
    """TOPIC, GROUP or CLUSTER."""
    name: str
    """Empty for the cluster: a server belongs to one."""
    actions: int
    made_for: bool = False
    """True if the request exists for an internal topic: then the permission for that topic itself is enough."""


Part = Callable[[Command], Iterable[Need]]
"""Returns what a request touches, read from its fields or its body."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What is declared beside a handler."""

    parts: tuple[Part, ...]
    is_audited: bool
    """Every such request leaves a line in the audit log, refused or not."""
    is_open: bool = False
    """Needs no account at all."""
    shows_body: bool = False
    """The audit line quotes the start of the body, which holds no secret."""
    proves_key: bool = False
    """An order between the brokers of a group: it proves their shared key, where they have one."""

    def needs(self, command: Command) -> Iterable[Need]:
        for part in self.parts:
            yield from part(command)


class Caller(Protocol):
    """Who made a request, as the server found out."""

    @property
    def name(self) -> str: ...

    @property
    def is_admin(self) -> bool:
        """Returns whether the caller may do everything."""
        ...

    def may(self, need: Need) -> bool: ...

    def require(self, need: Need) -> None:
        """Raises ReplyError(NO_PERMISSION) unless the caller may."""
        ...


HandlerType = TypeVar("HandlerType", bound=Callable[..., Any])


def needs(
    *parts: Part, audited: bool | None = None, is_open: bool = False, shows_body: bool = False, key: bool = False
) -> Callable[[HandlerType], HandlerType]:
    """Declares what a handler's requests need. Without parts, any account will do.

    Requests that only change something are audited, unless `audited` says otherwise. `key`: see `group_key`.
    """
    changes = any(getattr(part, "changes", False) for part in parts)
    rule = Rule(parts, changes if audited is None else audited, is_open, shows_body, key)

    def declare(handler: HandlerType) -> HandlerType:
        setattr(handler, _RULE, rule)
        return handler

    return declare


def rule_of(handler: Callable[..., Any]) -> Rule | None:
    """Returns what is declared beside a handler, None if nothing is."""
    return getattr(handler, _RULE, None)


def require(command: Command, *wanted: Need) -> None:
    """Raises ReplyError unless whoever made the request may do all of it. Without access control everybody may."""
    caller: Caller | None = command.caller
    if caller is not None:
        for need in wanted:
            caller.require(need)


def may(command: Command, need: Need) -> bool:
    """Returns whether whoever made the request may do this. Without access control everybody may."""
    caller: Caller | None = command.caller
    return caller is None or caller.may(need)


def is_admin(command: Command) -> bool:
    """Returns whether the request may touch everything. Without access control every request may."""
    caller: Caller | None = command.caller
    return caller is None or caller.is_admin


def topic_need(name: str, actions: int, *, made_for: bool = False) -> Need:
    """Returns the need for a topic. Retry and dead-letter topics belong to their group, and so do their permissions."""
    if name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        group_name = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
        return Need(GROUP, group_name, actions & ~PUB | SUB if actions & PUB else actions)
    return Need(TOPIC, name, actions, made_for)


def group_need(name: str, actions: int) -> Need:
    """Returns the need for a group."""
    return Need(GROUP, name, actions)


def on_topic(field: str, actions: int, *, if_given: bool = False, separator: str = "") -> Part:
    """Returns a part that reads one topic, or several between separators, from an ext field."""
    return _part(actions, lambda name: topic_need(name, actions), field, if_given, separator)


def on_group(field: str, actions: int, *, if_given: bool = False, separator: str = "") -> Part:
    """Returns a part that reads one group, or several between separators, from an ext field."""
    return _part(actions, lambda name: group_need(name, actions), field, if_given, separator)


def on_cluster(actions: int) -> Part:
    """Returns a part that needs the cluster as a whole: requests of operators and of other brokers."""
    found = (Need(CLUSTER, "", actions),)

    def part(command: Command) -> Iterable[Need]:
        return found

    return _marked(part, actions)


def _part(actions: int, need_of: Callable[[str], Need], field: str, if_given: bool, separator: str) -> Part:
    def part(command: Command) -> Iterable[Need]:
        text = command.ext.get(field, "")
        if if_given and not text:
            return ()
        names = text.split(separator) if separator else (text,)
        return [need_of(name) for name in names if name or not if_given]

    return _marked(part, actions)


def _marked(part: Part, actions: int) -> Part:
    """Notes on a part whether it only allows changes: such requests are acts of an administrator."""
    part.changes = not actions & ~_CHANGES  # type: ignore[attr-defined]
    return part
