"""What a node knows of its group's two keys in etcd, and whether etcd has lost something of them.  Pure.

    /tandemq/<cluster>/<brokerName>/register    the register, changed only by a swap on the revision that was read
    /tandemq/<cluster>/<brokerName>/holder      who reigns, as long as its lease lives

Answers and events come late, twice and out of order: each one carries the revision of the change, and what is older
than what is known changes nothing.  An answer that says that time went backwards is damage, never news.
"""

import contextlib

import msgspec

from tandemq.codec.ha_register import Register
from tandemq.replication.register import is_newer


class Holder(msgspec.Struct, frozen=True):
    """Whoever reigns, with its lease: the value of the key `holder`."""

    replica: str
    epoch: int
    address: str = ""


class KnownKeys:
    def __init__(self) -> None:
        self.register: Register | None = None
        self.revision = 0
        """Of the register: what a swap compares."""
        self.holder: Holder | None = None
        self.holder_lease = 0
        self._holder_revision = 0
        self.read_at = float("-inf")
        """When a question left that etcd has answered; a node that has never read it takes no part."""
        self.is_away = False
        """Whether etcd did not answer the last time it was read."""
        self.damage = ""
        """What is wrong with what etcd holds."""

    @property
    def was_read(self) -> bool:
        return self.read_at > float("-inf")

    def unanswered(self) -> None:
        self.is_away = True

    def answered(self, asked_at: float, revision: int, known: int) -> bool:
        """Notes that etcd answered, at this revision of the whole store; False: the answer is no news.

        `known`: `revision` when the question left.  Less than that is damage; less than what is known by now is only
        late, because a swap or an event was faster.  After damage it reads all that etcd holds anew, and only a
        register that is no older than the one known ends it.
        """
        self.is_away = False
        self.read_at = asked_at
        if revision < known:
            self.damage = f"etcd is at revision {revision}, it was at {known} before"
            self.revision = self._holder_revision = 0
            self.holder, self.holder_lease = None, 0
        return revision >= self.revision

    def told_register(self, data: bytes | None, revision: int) -> Register | None:
        """Notes what the key holds since `revision`, None for nothing at that one; returns a register that is news."""
        if data is None:
            if self.register is not None and revision >= self.revision:
                self.damage = "the register of this group is gone from etcd"
                self.revision = 0  # a swap that puts it there again finds no key
            return None
        if revision <= self.revision:
            return None
        try:
            register = msgspec.json.decode(data, type=Register)
        except msgspec.DecodeError as error:
            self.damage = f"the register in etcd can't be read: {error}"
            return None
        if self.register is not None and register != self.register and not is_newer(register, self.register):
            self.revision = revision
            self.damage = (
                f"the register in etcd is of epoch {register.epoch}, revision {register.revision}, older than the one "
                f"it had before ({self.register.epoch}, {self.register.revision})"
            )
            return None
        is_news = register != self.register
        self.took(register, revision)
        return register if is_news else None

    def took(self, register: Register, revision: int) -> None:
        """Notes that etcd has this register since `revision`."""
        if revision > self.revision:
            self.register, self.revision = register, revision
            self.damage = ""

    def told_holder(self, data: bytes | None, lease: int, revision: int) -> None:
        """Notes who reigns under which lease; None: nobody, its lease has ended or was given up."""
        if revision < self._holder_revision:
            return
        self._holder_revision = revision
        self.holder, self.holder_lease = None, 0
        if data is not None:
            with contextlib.suppress(msgspec.DecodeError):
                self.holder, self.holder_lease = msgspec.json.decode(data, type=Holder), lease

    def told_no_holder(self, revision: int) -> None:
        """Notes that a read of the whole store at `revision` found nobody; a claim may be newer than that."""
        if revision > self._holder_revision:
            self.told_holder(None, 0, revision)
