"""RocketMQ 5's accounts (ACL 2.0): users and policies that change at run time. Pure; the broker saves and copies it.

A super user may do everything. A normal user may do what its policies allow: an entry names a resource (`Topic:orders`,
`Topic:orders*`, `Group:*`, `Cluster:DefaultCluster`, `*`), the actions, the addresses they may come from, and whether
that is allowed or denied. Of the entries that fit a request the most exact one decides: a name before a prefix, a long
prefix before a short one, `*` last. The policy `Default` counts only where no entry of `Custom` fits. What no entry
fits is denied. (AclAuthorizationHandler)
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tandemq.codec import bodies
from tandemq.codec.acl import SigningKey
from tandemq.errors import TandemError
from tandemq.model.topic import TRACE_TOPIC, DataVersion
from tandemq.remoting.access.addresses import source_matcher, source_problem
from tandemq.remoting.access.needs import ACTION_NAMES, ALL_ACTIONS, CLUSTER, PUB, TOPIC, Need

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
CUSTOM, DEFAULT = "Custom", "Default"
ALLOW, DENY = "Allow", "Deny"

USERS_MAX = 10_000
ENTRIES_PER_USER_MAX = 1_000
SOURCES_PER_ENTRY_MAX = 100
SIZE_MAX = 8 << 20
"""Bytes of all users and policies, about as their file has them: slaves are told everything in one frame."""
USER_SIZE, ENTRY_SIZE, SOURCE_SIZE = 100, 100, 4
"""Bytes of each besides its names."""
NAME_LENGTH_MAX = 128
PASSWORD_LENGTH_MAX = 256

_KINDS = {"cluster": "Cluster", "namespace": "Namespace", "topic": "Topic", "group": "Group"}
_ACTIONS = {name.lower(): bit for bit, name in ACTION_NAMES.items()} | {"all": ALL_ACTIONS}


class AccessProblem(TandemError):
    """A change of users or policies that can't be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Resource:
    """What an entry is about."""

    kind: str
    """`Topic`, `Group`, `Cluster`, `Namespace`, or empty for everything."""
    name: str = ""
    is_prefix: bool = False
    """True if the name is only the start of names; with an empty name, any."""

    def __str__(self) -> str:
        if not self.kind:
            return "*"
        return f"{self.kind}:{self.name}{'*' if self.is_prefix else ''}"


EVERYTHING = Resource("", "", True)


def resource_of(text: str) -> Resource:
    """Returns the resource that a text such as `Topic:orders*` names; AccessProblem if it names none."""
    if text == "*":
        return EVERYTHING
    kind_text, separator, name = text.partition(":")
    kind = _KINDS.get(kind_text.strip().lower())
    if kind is None or not separator or not name:
        raise AccessProblem(f"resource {text[:80]!r}: * or Topic:NAME, Group:NAME, Cluster:NAME expected")
    if "*" in name[:-1]:
        raise AccessProblem(f"resource {text[:80]!r}: a * may only stand at the end")
    return Resource(kind, name.removesuffix("*"), name.endswith("*"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a policy."""

    resource: Resource
    actions: int
    sources: tuple[str, ...]
    """Addresses and networks the request may come from; none = any."""
    decision: str
    comes_from: Callable[[str], bool] = field(compare=False, default=lambda host: True)

    def fits(self, actions: int, host: str) -> bool:
        """Returns whether the entry says something about one of these actions from this address."""
        return bool(self.actions & actions) and self.comes_from(host)


def entry_of(resource: str, actions: Iterable[str], sources: Iterable[str], decision: str) -> Entry:
    """Returns one entry as an administrator wrote it; AccessProblem names what is wrong."""
    found, bits, places = resource_of(resource), 0, tuple(sources)
    for action in actions:
        bit = _ACTIONS.get(action.strip().lower())
        if bit is None:
            known = ", ".join([*ACTION_NAMES.values(), "All"])
            raise AccessProblem(f"action {action[:40]!r} of {found}: one of {known} expected")
        bits |= bit
    if not bits:
        raise AccessProblem(f"the entry for {found} has no action")
    if len(places) > SOURCES_PER_ENTRY_MAX:
        raise AccessProblem(f"the entry for {found} has {len(places)} addresses, the limit is {SOURCES_PER_ENTRY_MAX}")
    for place in places:
        if (problem := source_problem(place)) is not None:
            raise AccessProblem(f"{problem} (entry for {found})")
    verdict = {ALLOW.lower(): ALLOW, DENY.lower(): DENY}.get(decision.strip().lower())
    if verdict is None:
        raise AccessProblem(f"decision {decision[:40]!r} of {found}: {ALLOW} or {DENY} expected")
    return Entry(found, bits, places, verdict, source_matcher(places) if places else (lambda host: True))


def action_texts(actions: int) -> list[str]:
    """Returns the actions by RocketMQ's names."""
    return ["All"] if actions == ALL_ACTIONS else [name for bit, name in ACTION_NAMES.items() if actions & bit]


Policies = dict[str, dict[Resource, Entry]]
"""Policy type -> its entries by resource: an administrator who names a resource again replaces its entry."""


@dataclass(frozen=True, slots=True)
class User:
    """One user. Its password is never logged or shown."""

    name: str
    password: str = field(repr=False)
    kind: str = NORMAL
    status: str = ENABLED


class UserAccount:
    """A user with its policies, as access control asks it. Made anew when either changes."""

    __slots__ = ("_cluster", "_policies", "_prefix_sizes", "access_key", "is_admin", "problem", "signing_key")

    def __init__(self, user: User, policies: Policies, cluster: str, *, everything: bool) -> None:
        self.access_key = user.name
        self.signing_key = SigningKey(user.password)
        self.is_admin = everything or user.kind == SUPER
        self.problem = "" if user.status == ENABLED else f"user {user.name!r} is disabled"
        self._policies = policies
        self._prefix_sizes = {
            policy: sorted({len(resource.name) for resource in entries if resource.is_prefix}, reverse=True)
            for policy, entries in policies.items()
        }
        self._cluster = cluster

    def trusts(self, host: str) -> bool:
        """Returns whether requests from this address need no signature: they all do."""
        return False

    def may(self, need: Need, host: str) -> bool:
        if self.is_admin:
            return True
        kind, name = _KINDS[need.kind], self._cluster if need.kind == CLUSTER else need.name
        # Traces tell about the messages of all users: only an entry that names them opens them for reading.
        only_named = need.kind == TOPIC and name == TRACE_TOPIC and not need.actions & PUB
        for policy in (CUSTOM, DEFAULT):
            for entry in self._fitting(policy, kind, name):
                if entry.fits(need.actions, host) and (entry.resource.name or not only_named):
                    return entry.decision == ALLOW
        return False

    def _fitting(self, policy: str, kind: str, name: str) -> Iterator[Entry]:
        """Yields the entries of a policy for a resource, the most exact first. A resource has one entry at most, so the
        work depends on how many sizes of prefixes there are, not on the number of entries."""
        entries = self._policies.get(policy)
        if not entries:
            return
        candidates = [Resource(kind, name)]
        candidates += [Resource(kind, name[:size], True) for size in self._prefix_sizes[policy] if size <= len(name)]
        candidates.append(EVERYTHING)
        for resource in candidates:
            if (entry := entries.get(resource)) is not None:
                yield entry


class Held(NamedTuple):
    """A table as it was at one moment: what is made of it may be made beside the loop. Entries and users never
    change."""

    users: Mapping[str, User]
    policies: Mapping[str, Policies]
    version: DataVersion

    def users_named(self, part_of_name: str = "") -> list[User]:
        """Returns the users in order of their names, those with `part_of_name` in it if it is given."""
        return [user for name, user in sorted(self.users.items()) if part_of_name in name]

    def all_policies(self, part_of_name: str = "", part_of_resource: str = "") -> list[tuple[str, Policies]]:
        """Returns (user, policies) in order of the names, only entries with `part_of_resource` if it is given."""
        found = []
        for name, policies in sorted(self.policies.items()):
            if part_of_name not in f"User:{name}":
                continue
            kept = {
                policy: {r: e for r, e in entries.items() if part_of_resource in str(r)}
                for policy, entries in policies.items()
            }
            kept = {policy: entries for policy, entries in kept.items() if entries}
            if kept:
                found.append((name, kept))
        return found

    def snapshot(self) -> dict[str, Any]:
        """Returns what the broker's auth.json holds and a slave is told: passwords included."""
        return {
            "dataVersion": bodies.data_version_json(self.version),
            "users": {
                u.name: {"password": u.password, "userStatus": u.status, "userType": u.kind}
                for u in self.users.values()
            },
            "policies": {
                name: {policy: [entry_json(entry) for entry in held.values()] for policy, held in policies.items()}
                for name, policies in self.policies.items()
            },
        }


class UserTable:
    """Users and their policies, with the version that slaves compare. Every change calls `on_change`."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        *,
        cluster: str = "",
        authorize: bool = True,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._wall_ms = wall_ms
        self._cluster = cluster
        self._authorize = authorize
        """False: whoever proves to be a user may do everything (authorizationEnabled=false)."""
        self._users: dict[str, User] = {}
        self._policies: dict[str, Policies] = {}
        self._accounts: dict[str, UserAccount] = {}
        self._sizes: dict[str, int] = {}
        """User -> bytes of it and its policies."""
        self.size = 0
        self.on_change = on_change
        self.version = DataVersion(0, wall_ms(), 0)

    def __len__(self) -> int:
        return len(self._users)

    def account(self, name: str) -> UserAccount | None:
        """Returns what access control asks about a user, None if there is no such user."""
        found = self._accounts.get(name)
        if found is None and (user := self._users.get(name)) is not None:
            policies = self._policies.get(name, {})
            found = UserAccount(user, policies, self._cluster, everything=not self._authorize)
            self._accounts[name] = found
        return found

    # users

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def held(self) -> Held:
        """Returns the table as it is now."""
        return Held(dict(self._users), dict(self._policies), self.version)

    def users(self, part_of_name: str = "") -> list[User]:
        """Returns the users in order of their names, those with `part_of_name` in it if it is given."""
        return self.held().users_named(part_of_name)

    def create(self, name: str, password: str, kind: str = "", status: str = "") -> None:
        if name in self._users:
            raise AccessProblem(f"user {name!r} exists already")
        if len(self._users) >= USERS_MAX:
            raise AccessProblem(f"there are {len(self._users)} users, the limit is {USERS_MAX}")
        _check_name(name)
        _check_password(password)
        user = User(name, password, _kind(kind) or NORMAL, _status(status) or ENABLED)
        self._account_for(name, user, {})
        self._users[name] = user
        self._changed(name)

    def update(self, name: str, password: str = "", kind: str = "", status: str = "") -> None:
        """Changes what is given, leaves the rest."""
        user = self._existing(name)
        if password:
            _check_password(password)
        changed = replace(
            user,
            password=password or user.password,
            kind=_kind(kind) or user.kind,
            status=_status(status) or user.status,
        )
        self._account_for(name, changed, self._policies.get(name, {}))
        self._users[name] = changed
        self._changed(name)

    def delete(self, name: str) -> None:
        """Forgets a user with its policies; one that does not exist is no mistake."""
        if self._users.pop(name, None) is not None:
            self._policies.pop(name, None)
            self.size -= self._sizes.pop(name)
            self._changed(name)

    # policies

    def policies(self, name: str) -> Policies:
        """Returns the policies of a user, empty if it has none; AccessProblem if there is no such user."""
        self._existing(name)
        return self._policies.get(name, {})

    def all_policies(self, part_of_name: str = "", part_of_resource: str = "") -> list[tuple[str, Policies]]:
        return self.held().all_policies(part_of_name, part_of_resource)

    def put_entries(self, name: str, entries: Mapping[str, Iterable[Entry]]) -> None:
        """Adds entries to the policies of a user; one for the same resource is replaced."""
        user = self._existing(name)
        merged = {policy: dict(held) for policy, held in self._policies.get(name, {}).items()}
        for policy, told in entries.items():
            merged.setdefault(_policy(policy), {}).update((entry.resource, entry) for entry in told)
        count = sum(map(len, merged.values()))
        if not count:
            raise AccessProblem(f"no policy entry is given for user {name!r}")
        if count > ENTRIES_PER_USER_MAX:
            raise AccessProblem(f"user {name!r} would have {count} policy entries, the limit is {ENTRIES_PER_USER_MAX}")
        self._account_for(name, user, merged)
        self._policies[name] = merged
        self._changed(name)

    def delete_entries(self, name: str, policy: str = "", resource: str = "") -> None:
        """Deletes the entry for one resource of one policy (`Custom` if none is named), or everything of the user."""
        user = self._existing(name)
        held = self._policies.get(name)
        if held is None:
            raise AccessProblem(f"user {name!r} has no policies")
        if resource:
            kind, wanted = _policy(policy), resource_of(resource)
            kept = {r: e for r, e in held.get(kind, {}).items() if r != wanted}
            left = {**held, kind: kept}
            self._policies[name] = {policy: entries for policy, entries in left.items() if entries}
        if not resource or not self._policies[name]:
            del self._policies[name]
        self._account_for(name, user, self._policies.get(name, {}))
        self._changed(name)

    # as a whole

    def snapshot(self) -> dict[str, Any]:
        return self.held().snapshot()

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Replaces everything by a snapshot. AccessProblem or MalformedBody, and nothing replaced, if it is none."""
        loaded = UserTable(self._wall_ms)
        for name, value in bodies.object_of(snapshot.get("users"), "users").items():
            told = bodies.object_of(value, "user")
            text = bodies.text_of
            loaded.create(str(name), text(told, "password"), text(told, "userType"), text(told, "userStatus"))
        for name, value in bodies.object_of(snapshot.get("policies"), "policies").items():
            entries = {
                str(policy): [entry_from_json(entry) for entry in bodies.list_of(held, "entries")]
                for policy, held in bodies.object_of(value, "policies").items()
            }
            loaded.put_entries(str(name), entries)
        self._users, self._policies = loaded._users, loaded._policies
        self._sizes, self.size = loaded._sizes, loaded.size
        self._accounts.clear()
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])

    def _existing(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise AccessProblem(f"there is no user {name[:NAME_LENGTH_MAX]!r}")
        return user

    def _account_for(self, name: str, user: User, policies: Policies) -> None:
        """Notes what a user takes up from now on; AccessProblem, and nothing noted, if there is no room for it."""
        before, size = self._sizes.get(name, 0), _size_of(user, policies)
        if size > before and self.size - before + size > SIZE_MAX:
            raise AccessProblem(
                f"all users and policies take {self.size} bytes, {size - before} more would be over {SIZE_MAX}: "
                "use prefixes, networks, or fewer entries"
            )
        self._sizes[name] = size
        self.size += size - before

    def _changed(self, name: str) -> None:
        self._accounts.pop(name, None)
        self.version = self.version.next(self._wall_ms())
        self.on_change()


def _size_of(user: User, policies: Policies) -> int:
    size = USER_SIZE + len(user.name) + len(user.password)
    for entries in policies.values():
        for resource, entry in entries.items():
            size += ENTRY_SIZE + len(resource.name) + sum(SOURCE_SIZE + len(source) for source in entry.sources)
    return size


def entry_json(entry: Entry) -> dict[str, Any]:
    """Returns an entry in the form of RocketMQ's AclInfo.PolicyEntryInfo."""
    return {
        "actions": action_texts(entry.actions),
        "decision": entry.decision,
        "resource": str(entry.resource),
        "sourceIps": list(entry.sources) or None,
    }


def entry_from_json(value: Any) -> Entry:
    """Returns the entry in a PolicyEntryInfo; AccessProblem or MalformedBody if it is none."""
    told = bodies.object_of(value, "policy entry")
    return entry_of(
        bodies.text_of(told, "resource"),
        bodies.texts_of(told.get("actions"), "actions"),
        bodies.texts_of(told.get("sourceIps"), "sourceIps"),
        bodies.text_of(told, "decision"),
    )


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > NAME_LENGTH_MAX or not name.isprintable():
        raise AccessProblem(f"user name {name[:40]!r}: from 1 to {NAME_LENGTH_MAX} printable characters expected")


def _check_password(password: str) -> None:
    if not password.strip() or len(password) > PASSWORD_LENGTH_MAX:
        raise AccessProblem(
            f"the password has {len(password)} characters, from 1 to {PASSWORD_LENGTH_MAX} are expected, not all blank"
        )


def _kind(text: str) -> str:
    return _one_of(text, "userType", (SUPER, NORMAL))


def _status(text: str) -> str:
    return _one_of(text, "userStatus", (ENABLED, DISABLED))


def _policy(text: str) -> str:
    return _one_of(text, "policyType", (CUSTOM, DEFAULT)) or CUSTOM


def _one_of(text: str, what: str, known: tuple[str, ...]) -> str:
    if not text:
        return ""
    for name in known:
        if text.strip().lower() == name.lower():
            return name
    raise AccessProblem(f"{what} {text[:40]!r}: one of {', '.join(known)} expected")
