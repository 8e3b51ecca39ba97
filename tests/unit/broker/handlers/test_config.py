"""Reading and changing a broker's configuration by request: all or nothing, and every refusal names its key."""

from typing import Any

import pytest

from tandemq.broker.config import BrokerConfig
from tandemq.broker.handlers.config import BODY_SIZE_MAX, ConfigHandlers
from tandemq.broker.live_config import LiveConfig
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.store.config import StoreConfig
from tandemq.testing.broker_parts import FakeConnection, decoded


def live_config() -> LiveConfig:
    key = ReplicationConfig(shared_key="a-long-shared-secret")
    return LiveConfig(BrokerConfig(broker_name="broker-a"), StoreConfig(), RemotingConfig(), key, lambda: 1_000)


def ask(live: LiveConfig, code: int, body: bytes = b"") -> Command:
    connection: Any = FakeConnection()
    return decoded(ConfigHandlers(live).handlers()[code](connection, Command(code, None, body)))[0]  # type: ignore[arg-type]


def test_every_option_is_shown_by_rocketmqs_name_and_no_secret_is() -> None:
    reply = ask(live_config(), RequestCode.GET_BROKER_CONFIG)
    lines = bytes(reply.body).decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "haSharedKey=***" in lines
    assert '"counter"' in reply.ext["version"]


def test_what_is_changed_holds_at_once_and_counts_as_a_new_version() -> None:
    live, told = live_config(), []
    live.listeners.append(lambda: told.append(live.store.file_reserved_hours))
    before = live.version
    assert ask(live, RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=5\n").code == ResponseCode.SUCCESS
    assert told == [5]
    assert live.version != before


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b"fileReservedTime=soon", ResponseCode.INVALID_PARAMETER, "fileReservedTime"),
        (b"brokerName=other", ResponseCode.NO_PERMISSION, "brokerName"),
        (b"", ResponseCode.INVALID_PARAMETER, "names no property"),
        (b"\xff\xfe", ResponseCode.INVALID_PARAMETER, "UTF-8|utf-8"),
        (b"a=" + b"x" * BODY_SIZE_MAX, ResponseCode.INVALID_PARAMETER, str(BODY_SIZE_MAX)),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(body: bytes, code: ResponseCode, named: str) -> None:
    live = live_config()
    before = live.properties()
    with pytest.raises(ReplyError, match=named) as refused:
        ask(live, RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=7\n" + body if body else body)
    assert refused.value.code == code
    assert live.properties() == before, "the part that was right is not taken either"
