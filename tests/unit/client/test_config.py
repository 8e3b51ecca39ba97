"""Options of the client."""

import dataclasses

import pytest

from tandemq.client.config import ClientConfig, Compression, parse_namesrv
from tandemq.errors import ConfigError
from tandemq.settings import settings_of


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"send_timeout_ms": "3000"}, r"sendMsgTimeout='3000': must be a whole number"),
        ({"send_timeout_ms": 0}, r"sendMsgTimeout=0: must be at least 1 ms"),
        ({"send_timeout_ms": 2.5}, r"sendMsgTimeout=2.5"),
        ({"send_timeout_ms": True}, r"sendMsgTimeout=True"),
        ({"use_tls": "yes"}, r"useTLS='yes': must be true or false"),
        ({"use_tls": 1}, r"useTLS=1"),
        ({"compress_type": "ZLIB"}, r"compressType='ZLIB': must be one of ZLIB"),
        ({"namesrv": None}, r"namesrvAddr=None: must be text"),
        ({"namesrv": "nowhere"}, r"namesrvAddr='nowhere'"),
        ({"heartbeat_interval_ms": 200_000}, r"from 100 to 110000"),
        ({"pull_timeout_ms": 15_000}, r"must be more than brokerSuspendMaxTimeMillis"),
        ({"access_key": "a"}, r"belong together"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ClientConfig(**options)  # type: ignore[arg-type]


def test_right_options_pass() -> None:
    config = ClientConfig(compress_type=Compression.NONE, use_tls=True, send_timeout_ms=1)
    assert dataclasses.replace(config, send_timeout_ms=2).send_timeout_ms == 2


def test_every_field_is_a_described_option() -> None:
    assert set(settings_of(ClientConfig)) == {field.name for field in dataclasses.fields(ClientConfig)}
    keys = [described.key for _, described in settings_of(ClientConfig).values()]
    assert len(keys) == len(set(keys))


def test_a_name_server_list_is_split() -> None:
    assert parse_namesrv(" a:1 ; b:2,c:3;") == ("a:1", "b:2", "c:3")
    for wrong in ("", ";", "a", "a:", ":1", "a:b", "a:70000"):
        with pytest.raises(ConfigError, match="namesrvAddr"):
            parse_namesrv(wrong)
