"""Client-style unique message ids, for messages whose producer gave none (ali-ons, batches of Go).

Layout as Java's MessageClientIDSetter: ip 4 | process id 2 | random 4 | ms since the start of the month 4 | counter 2,
upper-case hex. The index finds messages by it.
"""

import os
import secrets
from collections.abc import Callable

MONTH_MS = 31 * 24 * 3600 * 1000


class UniqueIds:
    """Ids that no other broker process makes: address, process, a random word and a counter."""

    def __init__(self, host: bytes, wall_ms: Callable[[], int]) -> None:
        node = host[:4] + (os.getpid() & 0xFFFF).to_bytes(2, "big") + secrets.token_bytes(4)
        self._prefix = node.hex().upper()
        self._wall_ms = wall_ms
        self._counter = 0

    def next(self) -> str:
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{self._wall_ms() % MONTH_MS:08X}{self._counter:04X}"
