"""Where the other brokers of a group are, as far as a node's replication knows.  Pure."""

from tandemq.replication.epochs import ReplicaRecord, place_of
from tandemq.replication.master_state import MasterState


def heard_addresses(master: MasterState | None) -> list[str]:
    """Returns where the replicas are that have told this master who they are."""
    sessions = master.sessions.values() if master is not None else ()
    told = (session.address for session in sessions if not (session.classic or session.observer))
    return sorted({address for address in told if ":" in address})


def member_addresses(record: ReplicaRecord, master: MasterState | None, own: str) -> list[str]:
    """Returns where the group's other brokers were when they were last seen."""
    places = [place_of(replica) for replica in record.members]
    if record.register is not None:
        register = record.register
        places += [one.address or place_of(one.replica) for one in (*register.members, *register.joining)]
    if master is not None:
        places += [session.address for session in master.sessions.values() if not session.classic]
    return [place for place in dict.fromkeys(places) if ":" in place and place != own]
