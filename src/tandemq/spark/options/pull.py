"""Options of `format("rocketmq")` as a source."""

import re
from dataclasses import dataclass

from tandemq.errors import ConfigError
from tandemq.model.read_from import ReadFrom
from tandemq.settings import setting
from tandemq.spark.options.connect import ConnectOptions
from tandemq.spark.options.select import SelectOptions
from tandemq.spark.options.texts import listed


@dataclass(frozen=True, kw_only=True)
class PullOptions(SelectOptions, ConnectOptions):
    """`format("rocketmq")` as a source."""

    read_from: str = setting(
        "readFrom",
        ReadFrom.SLAVE.value,
        "slave: a slave if one is in sync, else the master; master; observer: one that the group's brokers show; any: "
        "whoever answers; or HOST:PORT of a broker of each group, separated by commas: an observer beside RocketMQ, or "
        "another replica that no name server knows.",
    )
    slave_lag_max_bytes: int = setting(
        "slaveMaxLagBytes",
        256 << 20,
        "A slave further behind than this does not count as in sync.",
        unit="bytes",
        minimum=0,
    )
    sql: str = setting(
        "sql",
        "",
        "SQL92 filter over properties that the broker applies, e.g. `amount > 100 AND TAGS = 'paid'`; the broker needs "
        "enablePropertyFilter=true.",
    )
    group_id: str = setting(
        "groupId", "", "Consumer group whose progress tools should show; no rebalancing takes place."
    )
    commit_group_offsets: bool = setting(
        "commitGroupOffsets", False, "Commit the offsets of completed micro-batches to groupId."
    )
    pull_size: int = setting(
        "pullSize", 4096, "Messages asked for in one request; brokers have their own limits.", minimum=1
    )
    pull_depth: int = setting("pullDepth", 4, "Requests of one task that are under way at once.", minimum=1, maximum=64)

    def check_together(self) -> None:
        """Raises ConfigError for rules that concern several options, or the text inside one."""
        self.check_selection()
        self.check_connect()
        _ = self.read_from_addresses
        if not (self.subscribe or self.subscribe_pattern or self.assign):
            raise ConfigError("one of subscribe, subscribePattern or assign must say what to read")
        if self.commit_group_offsets and not self.group_id:
            raise ConfigError("commitGroupOffsets=true needs groupId")
        if self.sql and self.wanted_tags:
            raise ConfigError(f"of sql={self.sql!r} and tags={self.tags!r} only one may be given: write TAGS IN (...)")

    @property
    def preference(self) -> ReadFrom:
        """Which members of a group are asked first, where no addresses are given."""
        return ReadFrom(self.read_from) if self.read_from in _PREFERENCES else ReadFrom.ANY

    @property
    def read_from_addresses(self) -> tuple[str, ...]:
        """The brokers to read from; none where a preference is given."""
        if self.read_from in _PREFERENCES:
            return ()
        addresses = listed(self.read_from)
        for address in addresses:
            if not _ADDRESS.fullmatch(address):
                raise ConfigError(
                    f"readFrom={self.read_from!r}: {address!r} is neither {', '.join(_PREFERENCES)} nor HOST:PORT"
                )
        if not addresses:
            raise ConfigError(f"readFrom={self.read_from!r}: give {', '.join(_PREFERENCES)} or HOST:PORT")
        return addresses


_PREFERENCES = tuple(choice.value for choice in ReadFrom)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]]+):\d{1,5}")
