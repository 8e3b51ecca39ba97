"""Whether what a replica has stored fits to what its coordinator has; and where the brokers of a register are.  Pure.

What is stored came from the coordinator, so what is read there afterwards is never older, unless it lost something:
then nobody begins anew over it, and the operator is told what to do.
"""

from tandemq.codec.ha_register import GROUP_HOME, Register
from tandemq.replication.epochs import place_of
from tandemq.replication.known_keys import KnownKeys
from tandemq.replication.register import is_newer


def refusal_of(keys: KnownKeys, home: str, stored: Register | None) -> str:
    """Returns why a replica with this stored register takes no part with what etcd has, and what to do.

    `home`: how a register names the etcd that was read.
    """
    found = keys.register
    if keys.damage:
        return (
            f"{keys.damage}: etcd was made anew or restored from a backup. Put its newest data back, or give it the "
            'register that this group knows with `tandemq ha home`; see docs/operations.md, "etcd was lost"'
        )
    if stored is None:
        return ""
    if found is None and stored.home == GROUP_HOME:
        return 'the register of this group lives in the group itself; see docs/operations.md, "From a manual group"'
    if found is None:
        return (
            "etcd has no register of this group, this replica knows of epoch "
            f'{stored.epoch}: etcd was made anew, or this is another one; see docs/operations.md, "etcd was lost"'
        )
    if stored.group_id != found.group_id:
        return f"etcd has the register of another group of this name ({found.group_id}, not {stored.group_id})"
    if found.home == GROUP_HOME:
        return "the register of this group lives in the group itself: take haCoordinator out of the file"
    if found.home != home or (stored.home != found.home and not is_newer(found, stored)):
        return (
            f"the register lives in {found.home}, this is {home}: etcd was restored from a backup, or "
            'haCoordinator names another one; see docs/operations.md, "etcd was lost"'
        )
    if is_newer(stored, found):
        return (
            f"etcd has the register of epoch {found.epoch}, revision {found.revision}, older than what this replica "
            f"has stored ({stored.epoch}, {stored.revision}): etcd was restored from a backup; see "
            'docs/operations.md, "etcd was lost"'
        )
    return ""


def address_of(register: Register, replica: str) -> str:
    member = register.find(replica)
    return (member.address if member is not None else "") or place_of(replica)
