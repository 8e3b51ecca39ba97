"""Lists of addresses: the patterns of plain_acl.yml, and the single addresses and networks of ACL 2.0."""

import ipaddress
import re
from collections.abc import Callable, Iterable

from tandemq.errors import ConfigError

_RANGE = re.compile(r"(\d{1,3})-(\d{1,3})\Z")


def address_matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Returns a test by patterns: `10.0.0.*`, `10.0.1-20.*`, `10.0.0.{1,2}`, `10.0.0.1,10.0.0.2`, `*`, a host."""
    choices = [_address_pattern(one) for pattern in patterns for one in _split_list(pattern)]
    return (lambda host: any(fits(host) for fits in choices)) if choices else (lambda host: False)


def _split_list(pattern: str) -> list[str]:
    """Commas separate addresses, except inside braces, whose members are multiplied out."""
    open_, close = pattern.find("{"), pattern.find("}")
    if 0 <= open_ < close:
        head, tail = pattern[:open_], pattern[close + 1 :]
        return [head + member.strip() + tail for member in pattern[open_ + 1 : close].split(",")]
    return [one.strip() for one in pattern.split(",") if one.strip()]


def _address_pattern(pattern: str) -> Callable[[str], bool]:
    if pattern in ("*", "*.*.*.*"):
        return lambda _: True
    if not any(mark in pattern for mark in "*-"):
        return lambda host: host == pattern
    parts = [_octet(part, pattern) for part in pattern.split(".")]

    def fits(host: str) -> bool:
        octets = host.split(".")
        if len(octets) != 4 or not all(octet.isdecimal() for octet in octets):
            return False
        return all(int(octet) in part for octet, part in zip(octets, parts, strict=False))

    if len(parts) > 4 or (len(parts) < 4 and not pattern.endswith("*")):
        raise ConfigError(f"address {pattern!r}: four parts, or fewer that end in *, expected")
    return fits


def _octet(part: str, pattern: str) -> range:
    if part == "*":
        return range(256)
    between = _RANGE.match(part)
    if between:
        return range(int(between[1]), int(between[2]) + 1)
    if part.isdecimal() and int(part) < 256:
        return range(int(part), int(part) + 1)
    raise ConfigError(f"address {pattern!r}: {part!r} is no number, range or *")


def source_problem(text: str) -> str | None:
    """Returns why this is no address or network (10.0.0.0/8) of a policy, or None."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return f"source address {text[:60]!r}: an IP address or a network such as 10.0.0.0/8 is expected"
    return None


def source_matcher(sources: Iterable[str]) -> Callable[[str], bool]:
    """Returns whether a host is one of these addresses or in one of these networks; all are checked by then."""
    networks = [ipaddress.ip_network(source, strict=False) for source in sources]

    def fits(host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address.version == network.version and address in network for network in networks)

    return fits
