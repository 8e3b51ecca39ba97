"""Which name server to ask: stay with one while it answers, go round when it does not. Pure.

Name servers don't know each other, and a client that hopped between them would see their views alternate.
"""

from collections.abc import Sequence


class NameServers:
    """The list, in order, with the one in use. The start is random so that clients spread over the servers."""

    def __init__(self, addresses: Sequence[str], start: int) -> None:
        if not addresses:
            raise ValueError("at least one name server address is needed")
        self._addresses = tuple(addresses)
        self._index = start % len(addresses)

    @property
    def current(self) -> str:
        return self._addresses[self._index]

    def candidates(self) -> tuple[str, ...]:
        """Returns all addresses, the current one first: each is tried once per question."""
        return self._addresses[self._index :] + self._addresses[: self._index]

    def answered(self, address: str) -> bool:
        """Stays with the address that answered. Returns whether that is a change."""
        changed = address != self.current
        self._index = self._addresses.index(address)
        return changed
