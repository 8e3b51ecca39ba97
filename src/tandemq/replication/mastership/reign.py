"""The beginning and the end of a reign.  Pure.

A higher epoch ends a reign (rule 5): from then on nothing is acknowledged, and nobody's offsets count any more.
"""

from tandemq.codec.ha_reasons import Reason
from tandemq.replication.acks import PutStatus
from tandemq.replication.decisions import Decision, Opened, SteppedDown
from tandemq.replication.epochs import Epoch
from tandemq.replication.mastership.confirming import Confirming
from tandemq.replication.mastership.core import MasterCore, Phase
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.mastership.membership import Membership


class Reign:
    """Opens a master for writes, and closes it."""

    def __init__(self, core: MasterCore, followers: Followers, membership: Membership, confirming: Confirming) -> None:
        self._core, self._followers = core, followers
        self._membership, self._confirming = membership, confirming

    def begin(self, out: list[Decision], epoch: Epoch, now: float) -> None:
        """Begins to write in the epoch, which is on record."""
        core = self._core
        core.enter(Phase.OPEN)
        core.ordered = False
        core.acks.restart(core.log.end, "no slave is in sync yet")
        self._membership.reign_begins(out, now)
        out.append(Opened(epoch))
        self._confirming.confirm(out)

    def end(self, out: list[Decision], text: str, number: int, *, asking: bool) -> None:
        """Stops acknowledging; `asking` says that this node tries to reign again."""
        acks = self._core.acks
        acks.fail_all(out, PutStatus.SERVICE_NOT_AVAILABLE, f"this broker is no longer the master: {text}")
        acks.forget_replicas(f"this broker is no longer the master: {text}")
        out.append(SteppedDown(text, number, asking))

    def step_down(self, out: list[Decision], text: str, number: int, now: float) -> None:
        """Ends the reign for good: somebody else reigns, or the operator says so."""
        core = self._core
        self.end(out, text, number, asking=False)
        core.provisional = False
        core.enter(Phase.DEPOSED)
        if number > core.record.campaigned:
            # Should it be promoted again, it asks for a number above the one that ended this reign.
            core.save(out, campaigned=number)
        self._followers.close_all(out, Reason.HIGHER_EPOCH, text, now)
