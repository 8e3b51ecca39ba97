"""What a master tells of its group, and the word it asks for.  Pure."""

from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import Members, Registered, Vouch, Vouched
from tandemq.replication.decisions import Decision
from tandemq.replication.following.core import SlaveCore
from tandemq.replication.register import is_newer


class Registers:
    """The group as this slave's record has it."""

    def __init__(self, core: SlaveCore) -> None:
        self._core = core

    def told(self, out: list[Decision], register: Register, now: float) -> None:
        """Stores a register only under the epoch this replica has promised to, and never an older one."""
        core = self._core
        promise, mine = core.record.promise, core.record.register
        if (register.epoch, register.epoch_id) != (promise.number, promise.id):
            return
        if mine is not None and mine.group_id != register.group_id:
            return
        if is_newer(register, mine):
            holder = {register.holder}
            core.save(
                out,
                register=register,
                members=register.member_ids - holder,
                in_sync=frozenset(register.in_sync) - holder,
            )
        core.send(out, Registered(register.epoch, register.revision), now)

    def told_members(self, out: list[Decision], members: Members) -> None:
        """Stores who belongs to a group without a register, and who is in sync."""
        core = self._core
        known, in_sync = frozenset(members.members), frozenset(members.in_sync)
        if (known, in_sync) != (core.record.members, core.record.in_sync):
            core.save(out, members=known, in_sync=in_sync)

    def asked_for_word(self, out: list[Decision], asked: Vouch, now: float) -> None:
        """Gives the word before the answer leaves, because it is kept from the moment it is given."""
        core = self._core
        if core.vouch is None or not core.is_following or asked.epoch != core.number:
            refused = "this replica does not follow that reign"
        else:
            refused = core.vouch(core.master, asked.epoch, now)
        core.send(out, Vouched(asked.number, refused), now)
