"""TLS of the HA port: asked for, it needs the certificates of either role."""

from dataclasses import replace

import pytest

from tandemq.broker.pair import tls as pair_tls
from tandemq.broker.pair.tls import ha_tls
from tandemq.errors import ConfigError
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.replication.config import ReplicationConfig

ON = ReplicationConfig(tls_enable=True)
WITH_FILES = RemotingConfig(tls_mode=TlsMode.PERMISSIVE, tls_cert_path="/cert.pem", tls_key_path="/key.pem")


def test_without_the_option_there_is_none() -> None:
    assert ha_tls(ReplicationConfig(), WITH_FILES) is None


@pytest.mark.parametrize("missing", [{"tls_cert_path": ""}, {"tls_key_path": ""}])
def test_both_files_are_needed_also_on_a_slave(missing: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="haTlsEnable=true: needs tlsServerCertPath and tlsServerKeyPath"):
        ha_tls(ON, replace(RemotingConfig(), **({"tls_cert_path": "/c", "tls_key_path": "/k"} | missing)))  # type: ignore[arg-type]


def test_the_modes_of_the_client_ports_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The HA port is encrypted on both sides, whatever clients may do without."""
    asked: list[RemotingConfig] = []

    def context(config: RemotingConfig) -> object:
        asked.append(config)
        return object()

    monkeypatch.setattr(pair_tls, "server_context", context)
    monkeypatch.setattr(pair_tls, "client_context", context)
    assert ha_tls(ON, WITH_FILES) is not None
    assert {(config.tls_mode, config.use_tls) for config in asked} == {(TlsMode.ENFORCING, True)}
