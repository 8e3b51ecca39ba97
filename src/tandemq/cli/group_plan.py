"""Several groups of one cluster on one machine, planned: which process has which name, ports and store. Pure.

A broker process uses one core. With N groups a machine uses N, and they share nothing. Group number i gets

    brokerName       NAME-i                    storePathRootDir   DIR/i
    listenPort       PORT + 10·i               haListenPort       the same, if it is set
    haMasterAddress  HOST:(PORT + 10·i), if it is set
    metricsPort      listenPort + 3 on 127.0.0.1, for the supervisor, which serves all of them on `metricsPort`

so the machine of the slaves takes the same file with its own role, id and address, and every group finds its master.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tandemq.broker.config import BrokerConfig
from tandemq.errors import ConfigError
from tandemq.formats import layout
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig

STEP = 10
"""A group uses its port, port + 1 (HA), port - 2 (VIP) and port + 3 (metrics, for its supervisor)."""
METRICS_OFFSET = 3
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Group:
    """One process of the plan."""

    name: str
    port: int
    store: Path
    settings: dict[str, str]
    """What its process is given on top of the file."""

    @property
    def metrics_port(self) -> int:
        return self.port + METRICS_OFFSET

    def flags(self) -> list[str]:
        return [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]


def plan_groups(broker: BrokerConfig, remoting: RemotingConfig, replication: ReplicationConfig) -> list[Group]:
    """Returns the groups that `brokerGroups` asks for; ConfigError when they don't fit."""
    count, port = broker.broker_groups, remoting.listen_port
    if port == 0:
        raise ConfigError("listenPort=0: groups need a fixed port, because clients and slaves expect PORT + 10·i")
    last = port + STEP * (count - 1) + METRICS_OFFSET
    if last > 65535:
        raise ConfigError(f"listenPort={port} with brokerGroups={count}: the last group would need port {last}")
    return [_group(number, broker, remoting, replication) for number in range(count)]


def _group(number: int, broker: BrokerConfig, remoting: RemotingConfig, replication: ReplicationConfig) -> Group:
    shift = STEP * number
    name, port = f"{broker.broker_name}-{number}", remoting.listen_port + shift
    store = broker.store_root / str(number)
    settings = {
        "brokerGroups": "1",
        "brokerName": name,
        "listenPort": str(port),
        "storePathRootDir": str(store),
    }
    if replication.ha_listen_port:
        settings["haListenPort"] = str(replication.ha_listen_port + shift)
    if replication.ha_master_address:
        host, _, ha_port = replication.ha_master_address.rpartition(":")
        settings["haMasterAddress"] = f"{host}:{int(ha_port) + shift}"
    settings["metricsPort"] = str(port + METRICS_OFFSET) if broker.metrics_port else "0"
    settings["metricsAddress"] = LOOPBACK
    return Group(name, port, store, settings)


def check_layout(root: Path, count: int, listed: Callable[[Path], list[str]]) -> list[str]:
    """Raises ConfigError where a start would leave messages behind; returns what the operator should know.

    `listed` gives the names in a directory, nothing for one that is not there.
    """
    alone = _has_log(root, listed)
    numbers = sorted(int(name) for name in listed(root) if name.isdecimal() and _has_log(root / name, listed))
    if count > 1 and alone:
        raise ConfigError(
            f"storePathRootDir={root} holds the store of a single broker: with brokerGroups={count} the stores lie in "
            f"{root}/0, {root}/1, …; give the groups another directory, or move this store to {root}/0 (the messages "
            "are then those of group 0)"
        )
    if count == 1 and numbers and not alone:
        raise ConfigError(
            f"storePathRootDir={root} holds the stores of groups {', '.join(map(str, numbers))}: start with "
            f"--groups {max(numbers) + 1}, or give one of them as storePathRootDir"
        )
    return [
        f"{root / str(number)} holds a store that no group uses: with brokerGroups={count} its messages are not served"
        for number in numbers
        if count > 1 and number >= count
    ]


def _has_log(root: Path, listed: Callable[[Path], list[str]]) -> bool:
    return any(layout.is_segment_name(name) for name in listed(root / layout.COMMIT_LOG))


# Restarts -------------------------------------------------------------------------------------------------------------

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 60.0
"""A process that ran this long is not in a loop of failures: the next pause is the first again."""


@dataclass(slots=True)
class BackOff:
    """How long to wait before a process is started again: 1 s, then twice as long each time, up to a minute."""

    pause: float = FIRST_PAUSE
    restarts: int = 0

    def after(self, uptime: float) -> float:
        """Returns the pause after a process that ran for `uptime` seconds has ended."""
        if uptime >= STEADY_SECONDS:
            self.pause = FIRST_PAUSE
        chosen = self.pause
        self.pause = min(LONGEST_PAUSE, 2 * self.pause)
        self.restarts += 1
        return chosen


# Metrics --------------------------------------------------------------------------------------------------------------


def merged_metrics(texts: dict[str, str]) -> str:
    """Returns the scrapes of all groups as one: each family is described once, each series says whose it is.

    Series get the label `broker` unless they have it.
    """
    families: dict[str, list[str]] = {}
    heads: dict[str, list[str]] = {}
    for group, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                _, kind, family, *_ = line.split(" ", 3)
                if kind in ("HELP", "TYPE") and line not in heads.setdefault(family, []):
                    heads[family].append(line)
                families.setdefault(family, [])
            elif line:
                families.setdefault(family, []).append(_labelled(line, group))
    lines = [line for family, samples in families.items() for line in (*heads.get(family, ()), *samples)]
    return "\n".join(lines) + "\n" if lines else ""


def _labelled(line: str, group: str) -> str:
    name, brace, rest = line.partition("{")
    if not brace:
        name, _, value = line.partition(" ")
        return f'{name}{{broker="{group}"}} {value}'
    if rest.startswith('broker="') or ',broker="' in rest:
        return line
    return f'{name}{{broker="{group}",{rest}'
