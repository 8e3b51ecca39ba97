"""Whether a promotion makes sense before it disturbs anybody.  Pure; the same in production and in the simulator.

A candidate asks around first, over the brokers' own ports: who does not answer there will not be heard either, and then
the operator is told at once, by name, and the master that reigns goes on undisturbed.  What is safe is decided later,
by accession.py, from the promises of those who were heard; this only saves a vain attempt.
"""

from tandemq.replication.accession import CLASSIC, Heard, judge
from tandemq.replication.epochs import ReplicaRecord


def refusal_of(record: ReplicaRecord, answered: frozenset[str]) -> str:
    """Returns why this replica should not be promoted now, and what to do; empty if nothing speaks against it.

    `answered`: the replicas that were asked and answered.
    """
    register = record.register
    if register is None:
        return ""
    if record.replica not in register.member_ids:
        joins = " yet: it joins the group" if record.replica in register.joining_ids else ""
        return f"this replica is no member of the group{joins}; see `tandemq ha status`, or promote another"
    others = [Heard(one, None) for one in sorted(answered & register.everybody) if one != record.replica]
    judgement = judge(Heard(record.replica, register, record.complete), record.has_opened, others)
    assert judgement is not None
    if judgement.may_open:
        return ""
    if judgement.missing == {record.replica}:
        return (
            "the machine of this replica crashed since it last had everything, so it may lack acknowledged messages: "
            "promote another, start the last master, or use --accept-loss"
        )
    if judgement.missing <= {record.replica, CLASSIC}:
        return (
            f"copies on RocketMQ slaves were counted from offset {register.classic_from} on, and those can't be asked: "
            f"start {register.holder}, which has what they hold, or use --accept-loss"
        )
    names = ", ".join(sorted(judgement.missing - {record.replica}))
    return (
        f"{names} cannot be heard and may hold acknowledged messages: start them, take them out for good with "
        "`tandemq ha forget` on a master, or use --accept-loss"
    )
