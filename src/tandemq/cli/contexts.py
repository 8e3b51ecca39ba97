"""Contexts: named clusters with their name servers, TLS files and credentials, kept in one file of the user.

$XDG_CONFIG_HOME/tandemq/contexts.json    (~/.config/… by default; readable by its owner only)
"""

import json
import os
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tandemq.client.config import parse_namesrv
from tandemq.errors import ConfigError

VARIABLE = "TANDEMQ_CONTEXT"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,62}\Z")

asked_for = ""
"""Set by `tandemq --context NAME`; wins over the environment and the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One cluster, and how to speak to it."""

    namesrv: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    access_key: str = ""
    secret_key: str = ""

    def __post_init__(self) -> None:
        if self.namesrv:
            parse_namesrv(self.namesrv)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("--access-key and --secret-key belong together: give both or none")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError("--tls-cert and --tls-key belong together: give both or none")

    def __repr__(self) -> str:
        return f"Context({self.namesrv!r})"

    def security(self) -> dict[str, Any]:
        """Returns the fields of ClientConfig that this context sets."""
        found = {
            "use_tls": self.tls or bool(self.tls_ca or self.tls_cert),
            "tls_ca_file": self.tls_ca,
            "tls_cert_file": self.tls_cert,
            "tls_key_file": self.tls_key,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Contexts:
    """The whole file."""

    current: str
    """The context that `tandemq context use` chose; empty for none."""
    by_name: dict[str, Context]


def path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(home) / "tandemq" / "contexts.json"


def load() -> Contexts:
    """Reads the file; without one there are no contexts."""
    file = path()
    try:
        document = json.loads(file.read_text("utf-8"))
        known = {field.name for field in fields(Context)}
        by_name = {
            str(name): Context(**{key: value for key, value in entry.items() if key in known})
            for name, entry in document.get("contexts", {}).items()
        }
        return Contexts(str(document.get("current", "")), by_name)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts("", {})
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}") from None
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{file} is no file of contexts ({error}); repair it or remove it") from None


def save(found: Contexts) -> None:
    """Replaces the file; nobody but its owner can read it, because it may hold secret keys."""
    file = path()
    document = {
        "current": found.current,
        "contexts": {
            name: {key: value for key, value in asdict(context).items() if value}
            for name, context in sorted(found.by_name.items())
        },
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_suffix(".new")
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump(document, out, indent=2)
        scratch.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: can't be written: {error.strerror}") from None


def check_name(name: str) -> None:
    if not _NAME.match(name):
        raise ConfigError(f"context {name[:64]!r}: a name of letters, digits, '.', '_' and '-' expected, at most 63")


def named(name: str) -> Context:
    """Returns a context; ConfigError names those there are."""
    by_name = load().by_name
    if name not in by_name:
        there = f"there are {', '.join(sorted(by_name))}" if by_name else "`tandemq context add` makes one"
        raise ConfigError(f"context {name!r} is unknown; {there}")
    return by_name[name]


def chosen_name() -> str:
    return asked_for or os.environ.get(VARIABLE, "") or load().current


def chosen() -> Context | None:
    """Returns the context in force; None without one."""
    name = chosen_name()
    return named(name) if name else None
