"""Client ids and the UNIQ_KEY every message carries.

UNIQ_KEY, 16 bytes as 32 upper-case hex digits, the layout of RocketMQ's MessageClientIDSetter (IPv4):

    ip 4 | pid 2 | hash of this generator 4 | ms since the start of the month 4 | counter 2

The admin tools read the creation time from it, so the layout is kept; the hash is random here, which makes ids of two
generators in one process differ.
"""

import os
import secrets
import socket
from datetime import UTC, datetime

MONTH_MS = 31 * 24 * 3600 * 1000


def local_ip() -> str:
    """Returns the IPv4 address other machines would see us by, or the loopback. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def client_id(ip: str, instance: str, unit: str = "") -> str:
    """Returns `ip@instance[@unit]`; an empty instance gives a unique id, because two members must never share one."""
    name = instance or f"{os.getpid()}#{secrets.randbits(63)}"
    return f"{ip}@{name}@{unit}" if unit else f"{ip}@{name}"


class UniqueKeys:
    """Makes UNIQ_KEYs; one per client."""

    __slots__ = ("_counter", "_month_end", "_month_start", "_prefix")

    def __init__(self, ip: str, pid: int | None = None) -> None:
        raw = socket.inet_aton(ip) + ((pid or os.getpid()) & 0xFFFF).to_bytes(2, "big") + secrets.token_bytes(4)
        self._prefix = raw.hex().upper()
        self._counter = secrets.randbits(16)
        self._month_start = self._month_end = 0

    def next(self, now_ms: int) -> str:
        if not self._month_start <= now_ms < self._month_end:
            self._enter_month(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{(now_ms - self._month_start) & 0xFFFFFFFF:08X}{counter:04X}"

    def _enter_month(self, now_ms: int) -> None:
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        start = datetime(now.year, now.month, 1, tzinfo=UTC)
        self._month_start = int(start.timestamp()) * 1000
        self._month_end = self._month_start + MONTH_MS
