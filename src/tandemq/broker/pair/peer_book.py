"""The addresses of a group's other brokers, remembered across restarts.

A name server shows one holder of id 0 and forgets who is away; a node that comes back must know by itself whom to ask
whether it still reigns. One small file, replaced whole; losing it costs a question, never a message.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from tandemq.errors import StoreError
from tandemq.store.disk import Disk

log = logging.getLogger(__name__)

ADDRESSES_MAX = 16
"""The newest are kept."""


class PeerBook:
    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.addresses: tuple[str, ...] = ()
        """Newest last."""
        if disk.file_size(path) is not None:
            try:
                self.addresses = tuple(msgspec.json.decode(disk.read_file(path), type=list[str])[-ADDRESSES_MAX:])
            except (msgspec.DecodeError, OSError, StoreError) as error:
                log.warning("%s can't be read and is begun anew: %s", path, error)

    def note(self, addresses: Iterable[str]) -> None:
        """Notes that these belong to the group."""
        fresh = [one for one in dict.fromkeys(addresses) if one and one not in self.addresses]
        if fresh:
            self._keep((*self.addresses, *fresh)[-ADDRESSES_MAX:])

    def drop(self, address: str) -> None:
        """Drops an address where somebody else lives now."""
        if address in self.addresses:
            self._keep(tuple(one for one in self.addresses if one != address))

    def _keep(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        try:
            self._disk.replace_file(self._path, msgspec.json.encode(list(addresses)))
        except (OSError, StoreError) as error:
            log.warning("%s can't be written: %s", self._path, error)
