"""Subscription groups: configuration by name, auto-creation, and which topics a group is forbidden to read.

Pure but for `wall_ms`. Every change calls `on_change(names)`, where the broker saves the table.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tandemq.broker.tables.changes import Changes
from tandemq.codec import bodies
from tandemq.model.topic import TRANS_GROUP, DataVersion, SubscriptionGroupConfig, group_name_problem

SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANS_GROUP,
)

FORBIDDEN_READ_BIT = 0
RETRY_QUEUES_MAX = 1024
"""The only bit upstream looks at in a (group, topic) forbidden mask."""


class GroupTable:
    """name -> SubscriptionGroupConfig, with the version of the whole."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        *,
        auto_create: bool = True,
        groups_max: int = 50_000,
        on_change: Callable[[Iterable[str]], None] = lambda names: None,
    ) -> None:
        self._wall_ms = wall_ms
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self._forbidden: dict[str, dict[str, int]] = {}
        self.auto_create = auto_create
        self.groups_max = groups_max
        self.on_change = on_change
        self.changes: Changes[str] = Changes()
        self.version = DataVersion(0, wall_ms(), 0)
        self.state_version = 0
        for name in SYSTEM_GROUPS:
            # Broadcasting is what tools do; upstream sets it for these three only.
            self._configs[name] = SubscriptionGroupConfig(name=name)

    def __len__(self) -> int:
        return len(self._configs)

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def get(self, name: str) -> SubscriptionGroupConfig | None:
        """Returns the config as it is; never creates one."""
        return self._configs.get(name)

    def all(self) -> Mapping[str, SubscriptionGroupConfig]:
        """Returns every config by name; read only."""
        return self._configs

    def is_system(self, name: str) -> bool:
        return name in SYSTEM_GROUPS

    def find_or_create(self, name: str) -> SubscriptionGroupConfig | None:
        """Returns the config, made with defaults where `autoCreateSubscriptionGroup` allows it; None otherwise."""
        found = self._configs.get(name)
        if found is not None:
            return found
        if not self.auto_create or group_name_problem(name) is not None or len(self._configs) >= self.groups_max:
            return None
        created = SubscriptionGroupConfig(name=name)
        self._configs[name] = created
        self._bump((name,))
        return created

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Adds or replaces; raises ValueError if the name can't be."""
        self.put_all((config,))

    def put_all(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        configs = list(configs)
        for config in configs:
            if (problem := group_name_problem(config.name)) is not None:
                raise ValueError(problem)
            _check_retry_queues(config)
        new_count = sum(config.name not in self._configs for config in configs)
        if len(self._configs) + new_count > self.groups_max:
            raise ValueError(f"the broker has {len(self._configs)} groups; groupsMax is {self.groups_max}")
        self._configs.update((config.name, config) for config in configs)
        self._bump(config.name for config in configs)

    def delete(self, name: str) -> bool:
        self._forbidden.pop(name, None)
        if self._configs.pop(name, None) is None:
            return False
        self._bump((name,))
        return True

    def forbidden(self, group: str, topic: str) -> int:
        """Returns the forbidden mask of (group, topic); 0 forbids nothing."""
        topics = self._forbidden.get(group)
        return topics.get(topic, 0) if topics else 0

    def is_forbidden(self, group: str, topic: str, bit: int = FORBIDDEN_READ_BIT) -> bool:
        return bool(self.forbidden(group, topic) >> bit & 1)

    def set_forbidden(self, group: str, topic: str, mask: int) -> None:
        topics = self._forbidden.setdefault(group, {})
        if mask:
            topics[topic] = mask
        else:
            topics.pop(topic, None)
        if not topics:
            del self._forbidden[group]
        self._bump((group,))

    def replace_all(
        self,
        configs: Iterable[SubscriptionGroupConfig],
        version: DataVersion,
        forbidden: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Takes over a master's table as it is, on its slave."""
        taken = {config.name: config for config in configs if group_name_problem(config.name) is None}
        for name in SYSTEM_GROUPS:
            taken.setdefault(name, SubscriptionGroupConfig(name=name))
        forbidding = {group: dict(topics) for group, topics in (forbidden or {}).items()}
        configs_before, self._configs = self._configs, taken
        forbidden_before, self._forbidden = self._forbidden, forbidding
        self.version = version
        names = {*configs_before, *taken, *forbidden_before, *forbidding}
        self._announce(
            name
            for name in names
            if configs_before.get(name) != taken.get(name) or forbidden_before.get(name) != forbidding.get(name)
        )

    def take_part(
        self,
        part: Mapping[str, SubscriptionGroupConfig | None],
        version: DataVersion,
        forbidden: Mapping[str, Mapping[str, int] | None],
    ) -> None:
        """Takes over what changed at the master, on its slave; None for what is gone there."""
        for name, config in part.items():
            if config is not None and group_name_problem(name) is None:
                self._configs[name] = config
            elif name not in SYSTEM_GROUPS:
                self._configs.pop(name, None)
        for name, topics in forbidden.items():
            if topics:
                self._forbidden[name] = dict(topics)
            else:
                self._forbidden.pop(name, None)
        self.version = version
        self._announce({*part, *forbidden})

    def members(self) -> dict[str, Any]:
        """Returns the small members of subscriptionGroup.json."""
        return {"dataVersion": bodies.data_version_json(self.version)}

    def maps(self) -> Iterable[tuple[str, Iterable[tuple[str, Any]]]]:
        """Returns the maps of subscriptionGroup.json; iterating survives changes of the table."""
        configs = ((config.name, bodies.group_config_json(config)) for config in list(self._configs.values()))
        return [("forbiddenTable", self.all_forbidden().items()), ("subscriptionGroupTable", configs)]

    def all_forbidden(self) -> dict[str, dict[str, int]]:
        """Returns group -> topic -> mask of everything that is forbidden."""
        return {group: dict(topics) for group, topics in self._forbidden.items()}

    def change(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the part of subscriptionGroup.json that holds these groups, None for those that are gone."""
        names = list(names)
        found = ((name, self._configs.get(name)) for name in names)
        configs = {name: None if config is None else bodies.group_config_json(config) for name, config in found}
        forbidden = {name: self._forbidden.get(name) for name in names}
        return {**self.members(), "forbiddenTable": forbidden, "subscriptionGroupTable": configs}

    def snapshot(self) -> dict[str, Any]:
        """Returns all of it, for GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        return {**self.members(), **{name: dict(entries) for name, entries in self.maps()}}

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Takes over what was read from subscriptionGroup.json."""
        table = bodies.object_of(snapshot.get("subscriptionGroupTable") or {}, "subscriptionGroupTable")
        loaded = [bodies.group_config_of(value, name) for name, value in table.items()]
        for config in loaded:
            _check_retry_queues(config)
        self._configs.update((c.name, c) for c in loaded if group_name_problem(c.name) is None)
        forbidden = bodies.object_of(snapshot.get("forbiddenTable") or {}, "forbiddenTable")
        self._forbidden = {
            group: {t: int(m) for t, m in bodies.object_of(topics, "forbiddenTable").items()}
            for group, topics in forbidden.items()
        }
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])

    def _bump(self, names: Iterable[str]) -> None:
        self.version = self.version.next(self._wall_ms(), self.state_version)
        self._announce(names)

    def _announce(self, names: Iterable[str]) -> None:
        names = list(names)
        for name in names:
            self.changes.note(name)
        self.on_change(names)


def _check_retry_queues(config: SubscriptionGroupConfig) -> None:
    if not 0 <= config.retry_queues <= RETRY_QUEUES_MAX:
        raise ValueError(
            f"retryQueueNums={config.retry_queues} of group {config.name}: must be from 0 to {RETRY_QUEUES_MAX}"
        )
