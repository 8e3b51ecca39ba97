"""`haCoordinator=etcd://host:port,host:port`: where the coordinator is, and how to speak to it."""

from dataclasses import dataclass
from typing import Final

from tandemq.errors import ConfigError

SCHEMES: Final = {"etcd": False, "etcds": True}
"""Scheme -> whether the connection is encrypted."""
DEFAULT_PORT: Final = 2379
ENDPOINTS_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Place:
    """All endpoints of one coordinator, in the order given."""

    endpoints: tuple[Endpoint, ...]
    tls: bool

    def __str__(self) -> str:
        return f"etcd{'s' if self.tls else ''}://{','.join(map(str, self.endpoints))}"


def parse_place(text: str) -> Place:
    """Returns what an option says; ConfigError names what is wrong with it."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator or scheme not in SCHEMES:
        raise ConfigError(f"haCoordinator={text}: must be etcd://host:port,host:port or, with TLS, etcds://host:port")
    parts = [part.strip() for part in rest.rstrip("/").split(",") if part.strip()]
    endpoints = tuple(dict.fromkeys(_endpoint(text, part) for part in parts))
    if not 1 <= len(endpoints) <= ENDPOINTS_MAX:
        raise ConfigError(f"haCoordinator={text}: names {len(endpoints)} endpoints, must be 1 to {ENDPOINTS_MAX}")
    return Place(endpoints, SCHEMES[scheme])


def _endpoint(text: str, part: str) -> Endpoint:
    if part.startswith("["):
        host, closed, port_text = part[1:].partition("]")
        port_text = port_text.removeprefix(":") if closed else "-"
    elif part.count(":") > 1:
        raise ConfigError(f"haCoordinator={text}: {part} has more than one colon; an IPv6 address goes in [brackets]")
    else:
        host, _, port_text = part.partition(":")
    port_text = port_text or str(DEFAULT_PORT)
    if not host or not port_text.isdecimal() or not 0 < int(port_text) < 65536:
        raise ConfigError(f"haCoordinator={text}: {part} is no host:port, for example 10.0.0.1:{DEFAULT_PORT}")
    return Endpoint(host, int(port_text))
