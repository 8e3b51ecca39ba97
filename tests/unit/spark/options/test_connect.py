"""Credentials, TLS and patience reach the client."""

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options import PullOptions, parse


def pull(**given: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", **given})


def test_credentials_come_from_options_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a secret need not be an option, which Spark shows here and there."""
    monkeypatch.delenv("TANDEMQ_ACCESS_KEY", raising=False)
    assert pull().cluster_access().credentials is None
    monkeypatch.setenv("TANDEMQ_ACCESS_KEY", "env")
    monkeypatch.setenv("TANDEMQ_SECRET_KEY", "hush")
    assert pull().cluster_access().credentials == ("env", "hush", "")
    given = pull(accessKey="a", secretKey="s", securityToken="t")
    assert given.cluster_access().credentials == ("a", "s", "t")


def test_half_of_a_pair_is_refused() -> None:
    with pytest.raises(ConfigError, match="secretKey is given without accessKey"):
        pull(secretKey="s")
    with pytest.raises(ConfigError, match="give both or none"):
        pull(useTLS="true", tlsClientCertPath="/c.pem")


def test_tls_is_used_where_asked_for_and_a_bad_file_is_named() -> None:
    assert pull().cluster_access().tls is None
    assert pull(useTLS="true").cluster_access().tls is not None
    with pytest.raises(ConfigError, match="tlsClientTrustCertPath=/nowhere"):
        pull(useTLS="true", tlsClientTrustCertPath="/nowhere").cluster_access()


def test_patience_is_the_users() -> None:
    access = pull(retries="3", retryIntervalMs="20", requestTimeoutMs="700").cluster_access()
    assert (access.retries, access.retry_interval_s, access.timeout_s) == (3, 0.02, 0.7)
