"""What an operator does to a simulated group: promotes, demotes, accepts a loss, forgets replicas that are gone."""

from collections.abc import Callable

from tandemq.replication.promotion import refusal_of
from tandemq.replication.session import have_all
from tandemq.sim.node import SimNode
from tandemq.sim.world import Ground

PROMOTION_EXPIRES = 0.8


class Operated(Ground):
    """A group with somebody who gives orders."""

    def _promote(self, *, accept_loss: bool = False) -> bool:
        """`tandemq broker promote` of any slave: refused by name if one that must be heard is silent."""
        candidates = [n for n in self.nodes if n.alive and n.slave is not None and n.events.now >= n.paused_until]
        if not candidates:
            return False
        node = self.random.choice(candidates)
        register = node.record.register
        if register is None and not any(other.record.register for other in self.nodes):
            self._tell(f"the operator promotes {node.name}: every store is lost, so it begins another group")
            self._order(node, accept_loss)
            return True
        if register is None or node.record.replica not in register.member_ids:
            return False
        refusal = refusal_of(node.record, self._answers(node))
        if refusal and not accept_loss:
            self._tell(f"the operator may not promote {node.name}: {refusal}")
            return False
        self._tell(f"the operator promotes {node.name}{', accepting a loss' if accept_loss else ''}")
        old = node.follows
        if node.is_following and old is not None and old.is_open and self._reaches(node, old):
            self._demote(old, lambda: self._order(node, accept_loss))
        else:
            self._order(node, accept_loss)
        return True

    def _answers(self, node: SimNode) -> frozenset[str]:
        """The replicas that answer a node which asks around."""
        return frozenset(n.record.replica for n in self._answering(node))

    def _demote(self, old: SimNode, then: Callable[[], None]) -> None:
        """Hands over: no more writes, the slaves get everything, then it steps down; or it goes on as before."""
        old.rest()
        incarnation, give_up_at = old.incarnation, self.events.now + 0.4

        def look() -> None:
            master = old.master
            if not old.alive or old.incarnation != incarnation or master is None or not old.is_open:
                then()
                return
            if have_all(master.sessions.values(), old.store.appended):
                self._tell(f"{old.name} hands over")
                old.guarded(lambda: old.act(master.order(0, "the operator demotes it", old.now)))
                then()
            elif self.events.now >= give_up_at:
                self._tell(f"{old.name} does not hand over")
                old.wake()
            else:
                self.events.after(0.01, look)

        self.events.after(0.01, look)

    def _order(self, node: SimNode, accept_loss: bool) -> None:
        """The candidate asks everybody; a promotion that has not come to an end in time is given up."""
        if not node.alive or node.slave is None:
            return
        node.guarded(lambda: node.change_role("master"))
        master, incarnation = node.master, node.incarnation
        if master is None:
            return
        if accept_loss:
            node.guarded(lambda: node.act(master.allow(node.now)))
        for other in self.nodes:
            if other is not node and self._reaches(node, other):
                self.events.after(self.random.uniform(0.0, 0.2), lambda other=other: self._point(other, node))  # type: ignore[misc]

        def expire() -> None:
            if node.alive and node.incarnation == incarnation and node.master is master and not node.is_open:
                self._tell(f"the promotion of {node.name} has expired")
                text = "the promotion has expired"
                node.guarded(lambda: node.act(master.order(0, text, node.now)))

        self.events.after(PROMOTION_EXPIRES, expire)

    def _point(self, node: SimNode, candidate: SimNode) -> None:
        """A candidate has announced itself: slaves go to it."""
        if node.alive and node.slave is not None and candidate.alive and candidate.master is not None:
            node.follows = candidate
            for link in list(node.links.values()):
                if link.there != candidate.name:
                    self.network.reset(link)

    def _is_group_gone(self, node: SimNode) -> bool:
        """Whether of all who answer nobody has a register."""
        return not any(other.record.register is not None for other in self._answering(node))

    def _accept_loss(self, node: SimNode) -> None:
        """`tandemq broker promote --accept-loss` of a master that waits."""
        gone = self._is_group_gone(node)
        node.guarded(lambda: node.act(node.master.allow(node.now, group_gone=gone)) if node.master else None)

    def _forget_lost(self, node: SimNode) -> None:
        """Two stores were lost: each new one waits for the other's former self, until the operator takes those out."""
        register, master = node.record.register, node.master
        if register is None or master is None:
            return
        here = {other.record.replica for other in self.nodes}
        for replica in sorted(register.everybody - here):
            self._tell(f"{node.name} is told to forget {replica}, whose store is gone")
            _, decisions = master.forget(replica, node.now)
            node.guarded(lambda decisions=decisions: node.act(decisions))  # type: ignore[misc]

    def _settle(self) -> None:
        """The operator's last round: promotes if nobody can open, and accepts a loss only when nothing else helps."""
        now = self.events.now
        regular = [n for n in self.nodes if n.is_open and n.master is not None and not n.master.provisional]
        if regular:
            self.chosen = max(regular, key=lambda n: n.record.promise.number)
            for node in self.nodes:
                if node is not self.chosen:
                    self._announce(self.chosen, node)
            if now > self.faults_until + 3.0:
                self._forget_lost(self.chosen)
        elif now > self.faults_until + 3.0 and not any(node.ordered for node in self.nodes):
            losing = now > self.faults_until + 8.0
            asking = [n for n in self.nodes if n.alive and n.master is not None and not n.ordered]
            if losing and asking:
                node = self.random.choice(asking)
                self._tell(f"the operator accepts a loss on {node.name}")
                self._accept_loss(node)
            else:
                self._promote(accept_loss=losing)
        self.events.after(0.3, self._settle)
