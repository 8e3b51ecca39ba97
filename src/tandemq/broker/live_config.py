"""The configuration as it is now: what the file said, plus what UPDATE_BROKER_CONFIG changed since.

Only options declared `tunable` can change, each through its own type and range; anything else, known or not, refuses
the whole request. RocketMQ let an administrator set any property, paths and commands included (CVE-2023-33246,
CVE-2024-23321). Changes last until the broker stops and are never written to a file.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from tandemq.broker.config import BrokerConfig
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ConfigError, ReplyError
from tandemq.model.topic import DataVersion
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.settings import overridden, settings_of
from tandemq.store.config import StoreConfig

log = logging.getLogger(__name__)

SECRET_WORDS = ("secret", "sharedkey", "password", "token")
"""Options with one of these in their name are shown as *** by GET_BROKER_CONFIG."""
KEYS_PER_REQUEST_MAX = 64


class LiveConfig:
    """The four configs of a broker; replaced as a whole, so a handler reads a consistent one."""

    def __init__(
        self,
        broker: BrokerConfig,
        store: StoreConfig,
        remoting: RemotingConfig,
        replication: ReplicationConfig,
        wall_ms: Callable[[], int],
    ) -> None:
        self.broker = broker
        self.store = store
        self.remoting = remoting
        self.replication = replication
        self._wall_ms = wall_ms
        self.version = DataVersion(0, wall_ms(), 0)
        self.listeners: list[Callable[[], None]] = []
        """Called after a change: those who copied a value take the new one."""

    def update(self, values: Mapping[str, str]) -> None:
        """Changes all or nothing; raises ReplyError that names the first key that can't be changed."""
        if len(values) > KEYS_PER_REQUEST_MAX:
            raise ReplyError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(values)} keys in one request, the limit is {KEYS_PER_REQUEST_MAX}",
            )
        parts: dict[str, dict[str, str]] = {}
        for key, text in values.items():
            owners = [name for name in _PARTS if key in _tunable_keys(getattr(self, name))]
            if not owners:
                log.warning("refused to change %r at run time", key[:100])
                raise ReplyError(ResponseCode.NO_PERMISSION, f"{key[:100]} can't be changed while the broker runs")
            for name in owners:
                parts.setdefault(name, {})[key] = text
        try:
            changed = {name: overridden(getattr(self, name), texts) for name, texts in parts.items()}
        except ConfigError as error:
            raise ReplyError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        for name, config in changed.items():
            setattr(self, name, config)
        self.version = self.version.next(self._wall_ms())
        log.info("configuration changed at run time: %s", ", ".join(f"{k}={v}" for k, v in values.items()))
        for listener in self.listeners:
            listener()

    def properties(self) -> dict[str, str]:
        """Returns every option by its property name, sorted, as GET_BROKER_CONFIG shows it."""
        found: dict[str, str] = {}
        for name in _PARTS:
            config = getattr(self, name)
            for field_name, (_, described) in settings_of(type(config)).items():
                value = getattr(config, field_name)
                hidden = value and any(word in described.key.lower() for word in SECRET_WORDS)
                found[described.key] = "***" if hidden else property_text(value)
        return dict(sorted(found.items()))


_PARTS = ("broker", "store", "remoting", "replication")


def property_text(value: Any) -> str:
    """Returns a value as a property file writes it."""
    if isinstance(value, Enum):
        return str(value.value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tunable_keys(config: Any) -> set[str]:
    assert dataclasses.is_dataclass(config)
    return {described.key for _, described in settings_of(type(config)).values() if described.tunable}
