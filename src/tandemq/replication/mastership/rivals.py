"""Meeting another number, another register or another reign: who gives way (rule 5).  Pure."""

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import Hello, Refuse
from tandemq.replication.decisions import Decision, Note
from tandemq.replication.epochs import Promise
from tandemq.replication.mastership.asking import Asking
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.opening import Opening
from tandemq.replication.mastership.reign import Reign
from tandemq.replication.register import RegisterKeeper, is_newer
from tandemq.replication.session import Session


class Rivals:
    """What a master does when it learns that it may not be the only one."""

    def __init__(self, core: MasterCore, followers: Followers, reign: Reign, asking: Asking, opening: Opening) -> None:
        self._core, self._followers, self._reign = core, followers, reign
        self._asking, self._opening = asking, opening

    # --- a number ---------------------------------------------------------------------------------------------------

    def ordered(self, out: list[Decision], number: int, text: str, now: float) -> None:
        """Follows an order to step down: somebody told of a higher epoch, or the operator demotes."""
        core = self._core
        if core.phase is not Phase.DEPOSED and (number > core.number or number == 0):
            self._reign.step_down(out, text, number, now)

    def refused(self, out: list[Decision], session: Session, refuse: Refuse, now: float) -> None:
        """Takes the refusal of a replica that ends its session, perhaps because it serves a higher epoch."""
        core = self._core
        is_higher = refuse.number > core.number and core.is_open and session.proven
        text = f"{session.replica or session.peer}: {refuse.text}"
        if is_higher and core.register is None:
            self._reign.step_down(out, text, refuse.number, now)
            return
        self._followers.bid_farewell(out, session, refuse.code, refuse.text, now)
        if is_higher and core.provisional:
            self._asking.campaign(out, refuse.number, now)
        elif is_higher:
            self._ask_again(out, refuse.number, text, now)

    def promised_other(
        self, out: list[Decision], session: Session, promised: Promise, hello: Hello, now: float
    ) -> None:
        """Decides what to do about a replica that serves another epoch than ours: somebody else reigns or asks."""
        core = self._core
        text = (
            f"replica {hello.replica} serves epoch {promised.number}/{promised.id[:8]}, ours is {core.number}; "
            "if nobody reigns in that one, promote the broker with the highest epoch"
        )
        if promised.number < core.number:
            return  # the answer to an earlier challenge of ours; the one to the last is on its way
        if core.provisional:
            self._asking.campaign(out, promised.number, now)
        elif core.is_open and core.register is not None:
            # A promise is no reign: it only raises the number that this master must use.
            self._ask_again(out, promised.number, text, now)
        elif core.is_open:
            self.give_way(out, hello, promised.number, text, now)
        elif core.phase in (Phase.SWAPPING, Phase.ASKING):
            core.enter(Phase.ASKING)
            self._asking.campaign(out, promised.number, now)
        else:
            self._followers.close(out, session, Reason.PROMISED, text, now)

    # --- a register -------------------------------------------------------------------------------------------------

    def met_another_register(self, out: list[Decision], session: Session, hello: Hello, now: float) -> bool:
        """Returns whether a replica has a newer register, one of another group, or one that does not name this node."""
        core = self._core
        mine, theirs = core.register, hello.register
        if theirs is not None and mine is not None and theirs.group_id != mine.group_id:
            if mine.member_ids == {core.record.replica} and not mine.joining and core.record.blind_from >= 0:
                self._abandon_group(out, f"replica {hello.replica} belongs to the group that was here before", now)
            else:
                text = f"{hello.replica} belongs to another group of this name ({theirs.group_id}, not {mine.group_id})"
                self._followers.close(out, session, Reason.WRONG_GROUP, text, now)
            return True
        is_ahead = theirs is not None and (mine is None or theirs.epoch > mine.epoch)
        if theirs is not None and is_ahead and core.phase in (Phase.OPEN, Phase.SWAPPING):
            text = f"replica {hello.replica} has the register of epoch {theirs.epoch}, held by {theirs.holder}"
            if theirs.holder == core.record.replica:
                self._ask_again(out, theirs.epoch, text, now)
            else:
                self._reign.step_down(out, text, theirs.epoch, now)
            return True
        if hello.refused:
            if theirs is not None and is_newer(theirs, mine) and core.phase is Phase.ASKING:
                self._reign.step_down(out, hello.refused, theirs.epoch, now)
            else:
                self._followers.close(out, session, Reason.NOT_NAMED, hello.refused, now)
            return True
        return False

    def _abandon_group(self, out: list[Decision], text: str, now: float) -> None:
        """Abandons a group that this node began without knowing of the one that exists, and that nobody has joined."""
        core = self._core
        out.append(Note("abandons-group", text, loud=True))
        core.keeper = RegisterKeeper(core.record.replica, None)
        self._asking.group_exists = True
        core.record = core.record.with_(register=None, members=frozenset(), in_sync=frozenset())
        self._ask_again(out, core.number, text, now)

    def _ask_again(self, out: list[Decision], above: int, text: str, now: float) -> None:
        """Ends the reign and asks with a higher number; opens again if those it needs are heard."""
        core = self._core
        if core.is_open:
            self._reign.end(out, text, above, asking=True)
        core.provisional = False
        core.enter(Phase.ASKING)
        core.save(out, reigning=False)
        self._followers.close_classic(out, text, now)
        self._asking.campaign(out, above, now)
        self._asking.decide(out, now)

    # --- a reign that nobody told us of -----------------------------------------------------------------------------

    def give_way(self, out: list[Decision], hello: Hello, above: int, text: str, now: float) -> None:
        """Ends this reign.

        One that opened without asking, and that nobody has joined, takes the group's history over and goes on."""
        record = self._core.record
        if record.blind_from >= 0 and not record.in_sync:
            self._take_over(out, hello, above, text, now)
        else:
            self._reign.step_down(out, text, above, now)

    def _take_over(self, out: list[Decision], hello: Hello, above: int, text: str, now: float) -> None:
        """Asks after all, and takes what the group has before it writes again."""
        core = self._core
        self._reign.end(out, text, above, asking=True)
        core.enter(Phase.ASKING)
        self._asking.ask_also(hello)
        core.save(out, reigning=False, in_sync=self._asking.ask)
        self._followers.close_classic(out, text, now)
        self._asking.campaign(out, above, now)

    # --- the coordinator's register ---------------------------------------------------------------------------------

    def swapped(self, out: list[Decision], register: Register, now: float) -> None:
        """Makes what was proposed count: the coordinator has it."""
        core = self._core
        if core.proposal is None or core.proposal[0] != register:
            return
        (_, more), core.proposal = core.proposal, None
        if core.phase is Phase.SWAPPING and register.epoch == core.number:
            self._opening.take_register(out, register)
            self._opening.open_reign(out, now)
        elif core.is_open and register.epoch == core.number:
            core.keeper.swap(core.register, register)
            core.save(out, **core.of_register(register), **more)
        elif core.phase is not Phase.DEPOSED:
            # Another promise was met while the swap was under way: this node is the holder, and asks on.
            core.keeper.begin(register)
            self._asking.decide(out, now)

    def learned(self, out: list[Decision], register: Register, now: float) -> None:
        """Takes the register that the coordinator has: perhaps our own proposal, perhaps somebody else's."""
        core = self._core
        if core.proposal is not None and core.proposal[0] == register:
            self.swapped(out, register, now)
            return
        known = core.register
        if not is_newer(register, known) or core.phase is Phase.DEPOSED:
            return
        core.proposal = None  # it compared what is there no longer
        is_newer_reign = known is None or register.epoch > known.epoch
        if register.holder != core.record.replica and is_newer_reign:
            text = f"{register.holder} holds epoch {register.epoch} of the group"
            self._reign.step_down(out, text, register.epoch, now)
        elif core.is_open and register.epoch == core.number:
            core.keeper.swap(known, register)
            core.save(out, **core.of_register(register))
        elif core.is_open:
            core.keeper.begin(register)
            text = "a proposal of its own for a later epoch was carried out after all"
            self._ask_again(out, register.epoch, text, now)
        else:
            core.keeper.begin(register)
            if core.phase is Phase.SWAPPING:
                core.enter(Phase.ASKING)
            self._asking.decide(out, now)
