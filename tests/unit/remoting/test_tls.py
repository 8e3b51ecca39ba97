"""What is wrong with a certificate is said by option and file."""

from pathlib import Path

import pytest

from tandemq.errors import ConfigError
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.remoting.tls import client_context, server_context


def test_without_tls_there_is_no_context() -> None:
    assert server_context(RemotingConfig()) is None
    assert client_context(RemotingConfig()) is None


def test_a_bad_certificate_is_named(tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    path.write_text("no certificate")
    config = RemotingConfig(tls_mode=TlsMode.ENFORCING, tls_cert_path=str(path), tls_key_path="/nowhere.key")
    with pytest.raises(ConfigError, match=r"tlsServerCertPath=.*server\.pem, tlsServerKeyPath=/nowhere\.key"):
        server_context(config)
    with pytest.raises(ConfigError, match="tlsClientTrustCertPath="):
        client_context(RemotingConfig(use_tls=True, tls_client_trust_path=str(path)))
