"""Half-open doors are told, each with what to do about it; whole ones are not."""

from tandemq.broker.exposure import exposures
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig

KEY = "a key that nobody guesses"


def test_only_what_is_open_is_told() -> None:
    controlled = RemotingConfig(authentication_enabled=True, access_key="someone", secret_key="secret-of-him")
    assert exposures(RemotingConfig(), ReplicationConfig()) == []
    assert exposures(controlled, ReplicationConfig(shared_key=KEY)) == []
    assert len(exposures(controlled, ReplicationConfig())) == 1
    assert "16 or more" in exposures(RemotingConfig(), ReplicationConfig(shared_key="short"))[0]
    assert "haClassicPeers" in exposures(RemotingConfig(), ReplicationConfig(shared_key=KEY, classic_peers="true"))[0]
