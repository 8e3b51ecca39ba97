"""Which member of a broker group a reader prefers."""

from enum import Enum


class ReadFrom(Enum):
    """Which members of a broker group may serve a read."""

    SLAVE = "slave"
    """A slave that is close to the master, else the master, else any slave."""
    MASTER = "master"
    OBSERVER = "observer"
    """An observer that a member of the group shows, the one that is least behind first; nobody else."""
    ANY = "any"
    """Whoever answers, the master first."""
