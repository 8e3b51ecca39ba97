"""The topics of a broker: configuration by name, the rule of auto-creation, and the version that slaves compare.

Pure but for the `wall_ms` given at construction. Every change calls `on_change(names)`, with the names of exactly the
topics that are new, different or gone: the broker saves them and tells the name servers there. Names are checked by the
one grammar of `model.topic` before they are kept.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tandemq.broker.tables.changes import Changes
from tandemq.codec import bodies
from tandemq.errors import TandemError
from tandemq.formats.log_mark import LOG_MARK_TOPIC
from tandemq.model.topic import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    DataVersion,
    TopicConfig,
    reply_topic,
    topic_name_problem,
)

READ_WRITE = PERM_READ | PERM_WRITE
QUEUES_MAX = 65_536
"""More queues than any topic needs; a queue costs a file when it gets its first message. Answers about each of them are
made in slices."""
UNIT_TOPIC = 1
UNIT_SUB_TOPIC = 2
"""topicSysFlag bits (TopicSysFlag)."""


class TopicTableFull(TandemError):
    """One more topic than `topics_max`."""


class TopicTable:
    """name -> TopicConfig, with the version of the whole."""

    def __init__(
        self,
        wall_ms: Callable[[], int],
        *,
        auto_create: bool = True,
        topics_max: int = 50_000,
        on_change: Callable[[Iterable[str]], None] = lambda names: None,
    ) -> None:
        self._wall_ms = wall_ms
        self._configs: dict[str, TopicConfig] = {}
        self.system: set[str] = set()
        """Topics of the broker itself; not deletable, hidden from users' lists."""
        self.auto_create = auto_create
        self.topics_max = topics_max
        self.on_change = on_change
        self.adopted: set[str] = set()
        """Topics that only the log knew: their configuration is a guess until a master or an administrator says it."""
        self._leaving: Counter[str] = Counter()
        """How often a topic was deleted here while the log says so at a place that is not dispatched yet."""
        self.changes: Changes[str] = Changes()
        self.version = DataVersion(0, wall_ms(), 0)
        self.state_version = 0
        """The master epoch that goes into each new version (stateVersion)."""

    def __len__(self) -> int:
        return len(self._configs)

    def __contains__(self, name: str) -> bool:
        return name in self._configs

    def get(self, name: str) -> TopicConfig | None:
        return self._configs.get(name)

    def all(self) -> Mapping[str, TopicConfig]:
        """Returns every config by name; read only."""
        return self._configs

    def is_system(self, name: str) -> bool:
        return name in self.system

    def create_on_send(
        self, topic: str, default_topic: str, queue_count: int, *, unit_mode: bool = False
    ) -> TopicConfig | None:
        """Returns the config of a topic first met in a send, made after its template; None where that is forbidden."""
        if (existing := self._configs.get(topic)) is not None:
            return existing
        template = self._configs.get(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self.auto_create:
            return None
        queues = max(0, min(queue_count, template.write_queues))
        created = TopicConfig(
            name=topic,
            read_queues=queues,
            write_queues=queues,
            perm=template.perm & ~PERM_INHERIT,
            filter_type=template.filter_type,
            sys_flag=UNIT_TOPIC if unit_mode else 0,
        )
        self.put(created)
        return created

    def create_internal(self, topic: str, queues: int, perm: int = READ_WRITE, *, sys_flag: int = 0) -> TopicConfig:
        """Returns the config of a topic the broker itself needs (%RETRY%, %DLQ%, …), made if it is missing."""
        if (existing := self._configs.get(topic)) is not None:
            return existing
        created = TopicConfig(name=topic, read_queues=queues, write_queues=queues, perm=perm, sys_flag=sys_flag)
        self.put(created)
        return created

    def put(self, config: TopicConfig) -> None:
        """Adds or replaces; raises ValueError if the name or the queue counts can't be."""
        self.put_all((config,))

    def put_all(self, configs: Iterable[TopicConfig]) -> None:
        """Adds or replaces several as one change."""
        configs = list(configs)
        for config in configs:
            self._check(config)
        changed = [config for config in configs if self._configs.get(config.name) != config]
        new_count = sum(config.name not in self._configs for config in changed)
        if len(self._configs) + new_count > self.topics_max:
            raise TopicTableFull(f"the broker has {len(self._configs)} topics; topicsMax is {self.topics_max}")
        self._configs.update((config.name, config) for config in changed)
        self.adopted.difference_update(config.name for config in configs)
        # An admin who repeats a command expects it to reach the name servers again, so an equal config announces too.
        self._bump(config.name for config in configs)

    def delete(self, name: str) -> bool:
        """Forgets a topic; the caller has written into the log that it is gone, and forgets its offsets."""
        self._leaving[name] += 1
        return self._forget(name)

    def adopt(self, queues: Iterable[tuple[str, int]]) -> list[str]:
        """Takes in topics of which the log has messages in these queues and the table knows nothing.

        What was acknowledged must be readable wherever the log is, also where the table of topics did not come in time.
        Returns the names of those that are new here. A topic without room in the table, or with a name that no client
        can ask for, stays out.
        """
        wanted: dict[str, int] = {}
        for topic, queue_id in queues:
            config = self._configs.get(topic)
            if config is None or (topic in self.adopted and queue_id >= config.write_queues):
                wanted[topic] = max(wanted.get(topic, 0), queue_id + 1)
        changed, new = [], []
        for topic, count in wanted.items():
            known = topic in self._configs
            if topic in self._leaving or topic_name_problem(topic) is not None or count > QUEUES_MAX:
                continue
            if not known and len(self._configs) >= self.topics_max:
                continue
            self._configs[topic] = TopicConfig(name=topic, read_queues=count, write_queues=count, perm=READ_WRITE)
            self.adopted.add(topic)
            changed.append(topic)
            if not known:
                new.append(topic)
        if changed:
            # A new time, so that name servers look; the same count, because nobody has changed the table.
            now = max(self._wall_ms(), self.version.timestamp + 1)
            self.version = dataclasses.replace(self.version, timestamp=now)
            self._announce(changed)
        return new

    def log_says_deleted(self, name: str) -> bool:
        """Follows the log, which says that the topic of before is gone: what was adopted from it goes too.

        Returns whether it was deleted here, so that all the rest has been done.
        """
        if name in self._leaving:
            self._leaving -= Counter((name,))
            return True
        if name in self.adopted:
            self._forget(name)
        return False

    def _forget(self, name: str) -> bool:
        self.adopted.discard(name)
        if self._configs.pop(name, None) is None:
            return False
        self._bump((name,))
        return True

    def add_system(self, config: TopicConfig) -> None:
        """Adds a topic of the broker's own at boot; one that is there already stays as it is."""
        self.system.add(config.name)
        if config.name not in self._configs:
            self._configs[config.name] = config
            self.changes.note(config.name)
            self.version = self.version.next(self._wall_ms(), self.state_version)

    def replace_all(self, configs: Iterable[TopicConfig], version: DataVersion, *, keeps_adopted: bool = False) -> None:
        """Takes over a master's table as it is, on its slave; the slave's own system topics stay.

        `keeps_adopted`: so do topics that only the log knows, because the table may be older than the log, as that of a
        RocketMQ slave is for ten seconds.
        """
        taken = {config.name: config for config in configs if topic_name_problem(config.name) is None}
        self.adopted = self.adopted.difference(taken) if keeps_adopted else set()
        for name in self.system | self.adopted:
            if name in self._configs:
                taken.setdefault(name, self._configs[name])
        self._leaving.clear()
        before, self._configs, self.version = self._configs, taken, version
        names = [name for name, config in taken.items() if before.get(name) != config]
        names += [name for name in before if name not in taken]
        self._announce(names)

    def take_part(self, part: Mapping[str, TopicConfig | None], version: DataVersion) -> None:
        """Takes over what changed at the master, on its slave; None for what is gone there."""
        names = []
        for name, config in part.items():
            self.adopted.discard(name)
            if config is None and name not in self.system:
                if self._configs.pop(name, None) is not None:
                    names.append(name)
            elif config is not None and topic_name_problem(name) is None and self._configs.get(name) != config:
                self._configs[name] = config
                names.append(name)
        self.version = version
        self._announce(names)

    def members(self) -> dict[str, Any]:
        """Returns the small members of topics.json."""
        return {"dataVersion": bodies.data_version_json(self.version)}

    def maps(self) -> Iterable[tuple[str, Iterable[tuple[str, Any]]]]:
        """Returns the maps of topics.json; iterating survives changes of the table."""
        entries = ((config.name, bodies.topic_config_json(config)) for config in list(self._configs.values()))
        return [("topicConfigTable", entries)]

    def change(self, names: Iterable[str]) -> dict[str, Any]:
        """Returns the part of topics.json that holds these topics, None for those that are gone."""
        found = ((name, self._configs.get(name)) for name in names)
        entries = {name: None if config is None else bodies.topic_config_json(config) for name, config in found}
        return {**self.members(), "topicConfigTable": entries}

    def load(self, snapshot: Mapping[str, Any]) -> None:
        """Takes over what was read from topics.json; drops names that break the grammar."""
        loaded = [
            bodies.topic_config_of(value, name)
            for name, value in bodies.object_of(snapshot.get("topicConfigTable") or {}, "topicConfigTable").items()
        ]
        for config in loaded:
            self._check_queues(config)
        self._configs.update((c.name, c) for c in loaded if topic_name_problem(c.name) is None)
        if snapshot.get("dataVersion"):
            self.version = bodies.data_version_of(snapshot["dataVersion"])

    def _check(self, config: TopicConfig) -> None:
        if (problem := topic_name_problem(config.name)) is not None:
            raise ValueError(problem)
        self._check_queues(config)
        if not 0 <= config.perm <= 15:
            raise ValueError(f"perm={config.perm} of topic {config.name}: must be from 0 to 15")

    def _check_queues(self, config: TopicConfig) -> None:
        for kind, count in (("readQueueNums", config.read_queues), ("writeQueueNums", config.write_queues)):
            if not 0 <= count <= QUEUES_MAX:
                raise ValueError(f"{kind}={count} of topic {config.name}: must be from 0 to {QUEUES_MAX}")

    def _bump(self, names: Iterable[str]) -> None:
        self.version = self.version.next(self._wall_ms(), self.state_version)
        self._announce(list(names))

    def _announce(self, names: list[str]) -> None:
        for name in names:
            self.changes.note(name)
        self.on_change(names)


def system_topics(
    cluster: str,
    broker_name: str,
    *,
    default_queues: int = 8,
    auto_create: bool = True,
    cluster_template: bool = True,
    broker_template: bool = True,
    trace_topic: str = "",
    schedule_levels: int = 18,
) -> list[TopicConfig]:
    """Returns what a broker has at boot (TopicConfigManager's list)."""

    def topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(name=name, read_queues=queues, write_queues=queues, perm=perm)

    inherit = READ_WRITE | PERM_INHERIT
    found = [
        topic(SELF_TEST_TOPIC, 1),
        topic(BENCHMARK_TOPIC, 1024),
        topic(cluster, 16, inherit if cluster_template else READ_WRITE),
        topic(broker_name, 1, inherit if broker_template else READ_WRITE),
        topic(OFFSET_MOVED_EVENT, 1),
        topic(SCHEDULE_TOPIC, schedule_levels),
        topic(reply_topic(cluster), 1),
        topic(f"rmq_sys_REVIVE_LOG_{cluster}", 8),
        topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker_name}", 1, PERM_INHERIT),
        topic(TRANS_HALF_TOPIC, 1),
        topic(TRANS_OP_HALF_TOPIC, 1),
        topic(TIMER_TOPIC, 1),
        topic(LOG_MARK_TOPIC, 1, 0),
    ]
    if auto_create:
        found.append(topic(AUTO_CREATE_TOPIC, default_queues, inherit))
    if trace_topic:
        found.append(topic(trace_topic, 1))
    return found


def masked(config: TopicConfig, broker_permission: int) -> TopicConfig:
    """Returns what the name servers are told of a topic by a broker that may not do everything."""
    if broker_permission & READ_WRITE == READ_WRITE:
        return config
    return dataclasses.replace(config, perm=config.perm & broker_permission)
