"""From Spark's option map to typed options, and to the lists in the documents."""

import difflib
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from tandemq.errors import ConfigError
from tandemq.settings import Setting, parse_text, settings_of
from tandemq.spark.options.files import FileOptions
from tandemq.spark.options.pull import PullOptions
from tandemq.spark.options.sink import SinkOptions

_SPARKS_OWN = {"path", "checkpointlocation", "queryname", "__partition_columns"}
"""Options that Spark itself adds or reads."""

_KAFKAS = {
    "kafka.bootstrap.servers": "nameserver",
    "kafka.group.id": "groupId",
    "groupidprefix": "groupId",
    "fetchoffset.numretries": "retries",
    "fetchoffset.retryintervalms": "retryIntervalMs",
    "kafkaconsumer.polltimeoutms": "requestTimeoutMs",
    "kafka.max.poll.records": "pullSize",
    "kafka.acks": "copies",
    "kafka.delivery.timeout.ms": "deliveryTimeoutMs",
    "kafka.compression.type": "compression",
    "kafka.batch.size": "batchBytes",
    "kafka.ssl.truststore.location": "tlsClientTrustCertPath",
}
"""Options of Kafka's connector, in lower case, and what they are called here."""

Options = TypeVar("Options", PullOptions, FileOptions, SinkOptions)


def parse(kind: type[Options], given: Mapping[str, str]) -> Options:
    """Returns the typed, checked options of one source or sink from Spark's (case-insensitive) option map."""
    known = _by_key(kind)
    values: dict[str, Any] = {}
    for key, text in given.items():
        found = known.get(key.lower())
        if found is None:
            if key.lower() in _SPARKS_OWN:
                continue
            raise ConfigError(_unknown_text(key, kind))
        values[found[0]] = parse_text(found[1], found[2], str(text))
    options = kind(**values)
    options.check_together()
    return options


def knows(kind: type, key: str) -> bool:
    """Returns whether a source or sink has an option of this name."""
    return key.lower() in _by_key(kind)


def _by_key(kind: type) -> dict[str, tuple[str, Any, Setting]]:
    """Returns lower-case option name or alias -> (field name, field, setting)."""
    known = {}
    for name, (field, about) in settings_of(kind).items():
        for key in (about.key, *about.aliases):
            known[key.lower()] = (name, field, about)
    return known


def _unknown_text(key: str, kind: type) -> str:
    names = [about.key for _, about in settings_of(kind).values()]
    ours = _KAFKAS.get(key.lower())
    if ours in names:
        return f"unknown option {key!r}: that is Kafka's; here it is {ours!r}"
    near = difflib.get_close_matches(key, names, 1, 0.6)
    return f"unknown option {key!r}" + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}")


def described(kind: type) -> list[tuple[str, str, str]]:
    """Returns (option, default, meaning) of every option, for the documents."""
    rows = []
    for field, about in settings_of(kind).values():
        default = field.default.value if isinstance(field.default, Enum) else field.default
        rows.append((about.key, str(default).lower() if isinstance(default, bool) else str(default), about.doc))
    return rows
