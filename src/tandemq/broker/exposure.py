"""What a configuration leaves open that its other half closes: told at the start, in `ha status` and by `doctor`."""

from typing import Final

from tandemq.remoting.access.accounts import is_controlled
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig

KEY_LENGTH_MIN: Final = 16
"""Characters. Whoever connects is shown a proof of the key to guess at, as often as its machine can."""


def exposures(remoting: RemotingConfig, replication: ReplicationConfig) -> list[str]:
    """Returns a sentence for each thing that is open, with what to do about it."""
    found = []
    key = replication.shared_key
    if is_controlled(remoting) and not key:
        found.append(
            "access is controlled, but there is no haSharedKey: whoever reaches the HA port reads the whole log and "
            "can end this broker's reign. Set one haSharedKey on all brokers of the group, or keep others off it"
        )
    if 0 < len(key) < KEY_LENGTH_MIN:
        found.append(
            f"haSharedKey has {len(key)} characters, and who connects can try keys until one fits: "
            f"take {KEY_LENGTH_MIN} or more, for example from `openssl rand -hex 32`"
        )
    if key and replication.takes_classic_peers:
        found.append(
            "haClassicPeers=true: RocketMQ's own HA protocol proves nothing, so whoever reaches the HA port reads the "
            "whole log although there is a haSharedKey"
        )
    return found
