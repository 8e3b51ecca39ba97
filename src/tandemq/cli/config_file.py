"""From a property file, a TOML file and `--set key=value` flags to the config dataclasses, remembering who set what.

Property files have java.util.Properties syntax, as RocketMQ's broker.conf and namesrv.conf: comments with # or !,
`key=value`, `key: value` or `key value`, a backslash continues a line, \\uXXXX escapes. TOML files may group keys in
tables; the tables' names don't matter. Flags win over the file.

A name that is no option of ours is one of three things. An option of RocketMQ that has no use here gets a note: a
user's own broker.conf is accepted as it is. A name close to one of ours is a typing mistake, and stops the start:
`brokerRol=SLAVE` must not start a master. `--lenient` makes it a note. Anything else gets a note.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tandemq.cli.upstream_keys import IGNORED
from tandemq.codec.properties import parse_properties
from tandemq.errors import ConfigError, MalformedBody
from tandemq.settings import Setting, parse_text, settings_of

FILE_SIZE_MAX = 4 * 1024 * 1024
NEAR = 0.84
"""How alike two names must be, from 0 to 1, for one to be a mistyped other: one letter in about twelve is wrong."""

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as written: its value's text and where it stands."""

    key: str
    text: str
    source: str
    """E.g. "broker.conf:12" or "--set"."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configs, by class, and the story of every value that is not a default."""

    configs: Mapping[type, Any]
    sources: Mapping[str, str]
    """Property name -> where its value came from; names not in here have their default."""
    warnings: Sequence[str] = field(default=())

    def __getitem__(self, config_class: type[Config]) -> Config:
        found: Config = self.configs[config_class]
        return found


def load(
    path: Path | None,
    classes: Iterable[type],
    *,
    overrides: Iterable[str] = (),
    defaults: Mapping[str, str] | None = None,
    lenient: bool = False,
) -> Loaded:
    """Builds each config class from a file (or none), flags `key=value`, and defaults other than the classes' own.

    A property that several classes declare (listenPort) is given to all of them. ConfigError names file and line.
    """
    entries = [Entry(key, text, "default of this command") for key, text in (defaults or {}).items()]
    written = read_file(path) if path is not None else []
    flags = [_flag(text) for text in overrides]
    known = _known_keys(classes := tuple(classes))
    warnings = []
    chosen: dict[str, Entry] = {}
    for entry in (*entries, *written, *flags):
        name = known.get(entry.key)
        if name is not None:
            chosen[name] = entry
        elif entry.source == "--set":
            raise ConfigError(f"--set {entry.key}={entry.text}: {_unknown(entry.key, known)}")
        elif _is_mistyped(entry.key, known) and not lenient:
            raise ConfigError(
                f"{entry.source}: {_unknown(entry.key, known)} Correct or remove the line (--lenient starts without it)"
            )
        else:
            warnings.append(f"{entry.source}: {_unknown(entry.key, known)}")
    configs = {config_class: _build(config_class, chosen) for config_class in classes}
    sources = {name: entry.source for name, entry in chosen.items()}
    return Loaded(configs, sources, tuple(warnings))


def _build(config_class: type, chosen: Mapping[str, Entry]) -> Any:
    values = {}
    used = {}
    for name, (declared, described) in settings_of(config_class).items():
        entry = chosen.get(described.key)
        if entry is None:
            continue
        try:
            values[name] = parse_text(declared, described, entry.text)
        except ConfigError as error:
            raise ConfigError(f"{entry.source}: {error}") from None
        used[described.key] = entry
    try:
        return config_class(**values)
    except ConfigError as error:
        source = next((entry.source for key, entry in used.items() if str(error).startswith(f"{key}=")), None)
        raise ConfigError(f"{source}: {error}" if source else str(error)) from None


def _known_keys(classes: Iterable[type]) -> dict[str, str]:
    """Returns every accepted spelling -> the property's own name."""
    known = {}
    for config_class in classes:
        for described in _settings(config_class):
            known.update(dict.fromkeys((described.key, *described.aliases), described.key))
    return known


def _settings(config_class: type) -> list[Setting]:
    return [described for _, described in settings_of(config_class).values()]


def _unknown(key: str, known: Iterable[str]) -> str:
    if key in IGNORED:
        return f"{key}: an option of RocketMQ that has no effect in TandemQ"
    near = nearest(key, known)
    hint = f"did you mean {near}?" if near else "`tandemq config` lists what there is"
    return f"{key}: no such option; {hint}"


def _is_mistyped(key: str, known: Iterable[str]) -> bool:
    return key not in IGNORED and nearest(key, known) is not None


def nearest(key: str, known: Iterable[str]) -> str | None:
    """Returns the option that was probably meant: the same letters in other case, or nearly the same letters."""
    by_letters = {name.lower(): name for name in known}
    if key.lower() in by_letters:
        return by_letters[key.lower()]
    near = difflib.get_close_matches(key.lower(), by_letters, n=1, cutoff=NEAR)
    return by_letters[near[0]] if near else None


def _flag(text: str) -> Entry:
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {text}: key=value expected, e.g. --set listenPort=9877")
    return Entry(key.strip(), value.strip(), "--set")


# Files ----------------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> list[Entry]:
    """Returns the entries of a .toml file, or of any other file in property syntax."""
    try:
        size = path.stat().st_size
        if size > FILE_SIZE_MAX:
            raise ConfigError(f"{path}: {size} bytes are no configuration, the limit is {FILE_SIZE_MAX}")
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what java.util.Properties reads
    if path.suffix == ".toml":
        return parse_toml(text, path.name)
    try:
        return [Entry(key, value, f"{path.name}:{number}") for number, key, value in parse_properties(text)]
    except MalformedBody as error:
        raise ConfigError(f"{path.name}: {error}") from None


def parse_toml(text: str, name: str) -> list[Entry]:
    """Scalars of a TOML document, tables flattened."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: no TOML: {error}") from None
    return list(_toml_entries(document, name, depth=0))


def _toml_entries(table: Mapping[str, Any], name: str, depth: int) -> Iterable[Entry]:
    for key, value in table.items():
        if isinstance(value, dict) and depth < 4:
            yield from _toml_entries(value, name, depth + 1)
        elif isinstance(value, bool):
            yield Entry(key, "true" if value else "false", name)
        elif isinstance(value, (str, int, float)):
            yield Entry(key, str(value), name)
        else:
            raise ConfigError(f"{name}: {key}: text, a number or true/false expected, got {type(value).__name__}")
