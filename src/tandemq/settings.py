"""One declared option: its RocketMQ property name, unit, range, meaning.

Each package owns one frozen dataclass of settings; a field made by `setting()` carries everything that the loader, the
`--help` texts, `tandemq config` and docs/configuration.md need, so that an option is described in exactly one place.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreConfig:
        flush_interval_ms: int = setting("flushIntervalCommitLog", 500, "How long …", unit="ms", minimum=1)

        def __post_init__(self) -> None:
            check(self)
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tandemq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known about one option besides its type and default."""

    key: str
    """The name in broker.conf / namesrv.conf: RocketMQ's own where RocketMQ has the option."""
    doc: str
    """Meaning and trade-off, one or two sentences."""
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    tunable: bool = False
    """May be changed at run time (UPDATE_BROKER_CONFIG). Never set for a path, address or credential."""
    aliases: tuple[str, ...] = ()
    """Other accepted names, e.g. the one of an older RocketMQ."""


def setting(
    key: str,
    default: Any,
    doc: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    tunable: bool = False,
    aliases: tuple[str, ...] = (),
) -> Any:
    """Returns a dataclass field that carries its `Setting`."""
    described = Setting(key, doc, unit, minimum, maximum, tunable, aliases)
    return dataclasses.field(default=default, metadata={"setting": described})


def settings_of(config_class: type) -> dict[str, tuple[dataclasses.Field[Any], Setting]]:
    """Returns field name -> (field, Setting) for every declared option of a config dataclass."""
    return {f.name: (f, f.metadata["setting"]) for f in dataclasses.fields(config_class) if "setting" in f.metadata}


def check(config: Any) -> None:
    """Raises ConfigError for the first value of a wrong type or range; called from `__post_init__`."""
    for name, (field, described) in settings_of(type(config)).items():
        value = getattr(config, name)
        if not _fits(value, field.default):
            raise ConfigError(f"{described.key}={value!r}: must be {_accepted_text(field)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        low, high = described.minimum, described.maximum
        if (low is not None and value < low) or (high is not None and value > high):
            raise ConfigError(f"{described.key}={value}: must be {_range_text(low, high)}{_unit_text(described)}")


def _fits(value: Any, default: Any) -> bool:
    """Returns whether a value has the type of an option's default. Whole numbers fit where fractions do."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return isinstance(value, (int, float) if isinstance(default, float) else type(default))


def parse_text(field: dataclasses.Field[Any], described: Setting, text: str) -> Any:
    """Returns the typed value of an option written as text in a property file, a flag or UPDATE_BROKER_CONFIG."""
    default: Any = field.default
    kind: Any = type(default)
    text = text.strip()
    try:
        if isinstance(default, Enum):
            return kind(text)
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is int:
            return int(text)
        if kind is float:
            return float(text)
    except (ValueError, KeyError):
        accepted = _accepted_text(field)
        raise ConfigError(f"{described.key}={text!r}: must be {accepted}") from None
    return text


def overridden(config: Any, values: Mapping[str, str]) -> Any:
    """Returns the same config with some options, given by property name, replaced."""
    by_key = {s.key: (name, f, s) for name, (f, s) in settings_of(type(config)).items()}
    changes = {}
    for key, text in values.items():
        name, field, described = by_key[key]
        changes[name] = parse_text(field, described, text)
    return dataclasses.replace(config, **changes)


def _accepted_text(field: dataclasses.Field[Any]) -> str:
    default: Any = field.default
    if isinstance(default, Enum):
        return "one of " + ", ".join(str(member.value) for member in type(default))
    return {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[type(default)]


def _range_text(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"from {plain_number(low)} to {plain_number(high)}"
    return f"at least {plain_number(low)}" if low is not None else f"at most {plain_number(high or 0)}"


def plain_number(value: float) -> str:
    """Returns a number with all its digits: 12582912, not 1.25829e+07."""
    return str(int(value)) if value == int(value) else str(value)


def _unit_text(described: Setting) -> str:
    return f" {described.unit}" if described.unit else ""
