"""A node's replica record: loaded once, changed by whoever plays the node's role, saved before anything rests on it."""

import contextlib
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from tandemq.codec.ha_register import Register
from tandemq.errors import DiskFull
from tandemq.replication import replica_file
from tandemq.replication.epochs import ReplicaRecord, new_identity
from tandemq.replication.first_copy import Compared
from tandemq.replication.hands import StoreHands
from tandemq.store.disk import Disk, FileDisk
from tandemq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class RecordKeeper:
    """The record of one store, as it is on disk or, for what a machine has just decided, about to be."""

    def __init__(self, store: MessageStore, hands: StoreHands, disk: Disk, root: Path, address: str) -> None:
        self._disk, self._root = disk, root
        self.record = hands.after_recovery(self._load(store, address))

    def _load(self, store: MessageStore, address: str) -> ReplicaRecord:
        record = replica_file.load(self._disk, self._root)
        if record is None:
            # A store that RocketMQ filled has a log but no record: its bytes have no name, but they are its own.
            blind_from = 0 if store.appended == 0 else -1
            record = ReplicaRecord(new_identity(address, secrets.token_hex(8)), blind_from=blind_from)
            replica_file.save(self._disk, self._root, record)
        elif not record.replica:  # made from a backup: a log with its history, and a replica that nobody knows yet
            record = record.with_(replica=new_identity(address, secrets.token_hex(8)))
            replica_file.save(self._disk, self._root, record)
        if record.history.epochs and store.dispatched > record.confirmed:
            # The record says what was confirmed when it was last saved; the views have what readers saw since.
            record = record.with_(confirmed=store.dispatched)
        return record

    # --- looking at it ----------------------------------------------------------------------------------------------

    @property
    def register(self) -> Register | None:
        return self.record.register

    @property
    def is_holder(self) -> bool:
        """Whether the register says that this replica reigns, or reigned last."""
        return self.record.register is not None and self.record.register.holder == self.record.replica

    # --- changing it ------------------------------------------------------------------------------------------------

    def saved(self, record: ReplicaRecord) -> None:
        """Takes what a machine had saved."""
        self.record = record

    def remember_role(self, role: str) -> None:
        """Saves the role a node was given: a promotion outlives a restart with the file as it is."""
        if role != self.record.role:
            self._save(self.record.with_(role=role))

    def remember_confirmed(self, confirmed: int) -> None:
        """Saves what one role knew to be confirmed, so that the next one shows it at once."""
        if confirmed != self.record.confirmed:
            self.record = self.record.with_(confirmed=confirmed)
            with contextlib.suppress(DiskFull):  # the next change of the record saves it
                replica_file.save(self._disk, self._root, self.record)

    def remember_compared(self, compared: Compared, count: Callable[[str], None]) -> None:
        """Saves what a RocketMQ master has that this replica lacks, and up to where it is still copying."""
        if compared.lacks is not None and self.record.lacks is None:
            log.warning("this replica lacks [%d, %d) of the history that its master has kept", *compared.lacks)
            count("lacks-history")
        self._save(self.record.with_(lacks=compared.lacks, copying_to=compared.goal))

    def _save(self, record: ReplicaRecord) -> None:
        self.record = record
        replica_file.save(self._disk, self._root, record)


def known_confirmed(root: Path) -> int | None:
    """Returns what the replica under `root` last knew to be confirmed: its store opens no further for readers."""
    record = replica_file.load(FileDisk(1), root)
    return record.confirmed if record is not None and record.history.epochs else None
