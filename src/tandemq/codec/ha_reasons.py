"""Why HA sessions are refused or end, as codes on the wire, and what an operator does about each."""

from enum import Enum
from typing import Final


class Reason(Enum):
    """Why a session was refused or ended; the value is the code on the wire and in `tandemq ha status`."""

    WRONG_GROUP = "wrong-group"
    KEY_REFUSED = "key-refused"
    TLS = "tls-failed"
    VERSION = "version"
    SEGMENT_SIZE = "segment-size"
    SAME_IDENTITY = "same-identity"
    NOT_MASTER = "not-master"
    NOT_NAMED = "not-named"
    HIGHER_EPOCH = "higher-epoch"
    PROMISED = "promised-elsewhere"
    DIVERGED = "diverged"
    OFFSET_GONE = "offset-gone"
    AHEAD = "ahead-of-master"
    BAD_ACK = "bad-ack"
    REPLACED = "replaced"
    DISK_FULL = "disk-full"
    LOG_POISONED = "log-poisoned"
    CORRUPT = "corrupt-frame"
    TOO_MANY = "too-many-sessions"
    CLASSIC_REFUSED = "classic-refused"
    SILENT = "silent"
    STOPPING = "stopping"
    UNREACHABLE = "unreachable"
    LOST = "connection-lost"

    @property
    def advice(self) -> str:
        """Returns what an operator does about it."""
        return _ADVICE[self]


_ADVICE: Final = {
    Reason.WRONG_GROUP: "give both brokers the same brokerClusterName and brokerName, or correct haMasterAddress",
    Reason.KEY_REFUSED: "set the same haSharedKey on both brokers, which must run the same version of TandemQ",
    Reason.TLS: "set haTlsEnable alike on both brokers, and tlsClientTrustCertPath to what vouches for the certificate",
    Reason.VERSION: "upgrade the older of the two brokers",
    Reason.SEGMENT_SIZE: "set mappedFileSizeCommitLog as the master's, with an empty store directory",
    Reason.SAME_IDENTITY: "the slave's address points to itself, or its store was copied: remove replica.json there",
    Reason.NOT_NAMED: "the group's register does not name that broker; `tandemq ha status` shows who belongs to it",
    Reason.NOT_MASTER: "that broker is no master now; see its own status, or correct haMasterAddress",
    Reason.HIGHER_EPOCH: "another master has taken over; restart this one as a slave, or promote it",
    Reason.PROMISED: "the slave serves a newer master; this master will step down or ask again",
    Reason.DIVERGED: "the logs have nothing in common; the slave starts over from the master's first offset",
    Reason.OFFSET_GONE: "the master no longer has these bytes; the slave starts over from the master's first offset",
    Reason.AHEAD: "give the slave an empty store directory: it copies the master anew",
    Reason.BAD_ACK: "the peer confirmed bytes it was never sent: look for a foreign program on the HA port",
    Reason.REPLACED: "the same replica connected again; if it repeats, two brokers share a copied store",
    Reason.DISK_FULL: "free space on the full disk or add some; it goes on by itself",
    Reason.LOG_POISONED: "the slave's disk failed a write; replace it and start the slave with an empty store",
    Reason.CORRUPT: "bytes were damaged on the way; it reconnects by itself, look at the network if it repeats",
    Reason.TOO_MANY: "raise haSessionsMax on the master",
    Reason.CLASSIC_REFUSED: "give both the haSharedKey, or set haClassicPeers=true for RocketMQ, which has none",
    Reason.SILENT: "the link is cut or the peer hangs; check the network and haHousekeepingInterval",
    Reason.STOPPING: "the peer is shutting down; it reconnects by itself",
    Reason.UNREACHABLE: "check the address, that the master runs, and that its HA port is open",
    Reason.LOST: "the connection broke; it reconnects by itself",
}
