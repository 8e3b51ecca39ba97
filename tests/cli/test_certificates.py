"""Commands against servers that ask for a client certificate and a signature, with the samples of `deploy/security`."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.peers.servers import free_ports

SECURITY = Path(__file__).parents[2] / "deploy" / "security"
ACCOUNT = ("--access-key", "operator", "--secret-key", "change-me-operator")


@contextmanager
def server(cli: Cli, noun: str, settings: Mapping[str, object]) -> Iterator[None]:
    """A server of that noun, ready, with these properties."""
    conf = cli.directory / f"{noun}.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [*cli.program, noun, "-c", str(conf), "--log-level", "ERROR"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cli.environment) as process:
        assert process.stdout is not None
        ready = "ready on" if noun == "namesrv" else "boot success"
        assert any(ready in line for line in process.stdout)
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture
def namesrv(alone: Cli, tmp_path: Path) -> Iterator[str]:
    """A name server and a broker of which each takes only clients with a certificate and an account."""
    subprocess.run([SECURITY / "make-certificates.sh", tmp_path / "tls", "127.0.0.1"], check=True, capture_output=True)
    (port,) = free_ports()
    (broker_port,) = free_ports(around=True)
    strict = {
        "bindAddress": "127.0.0.1",
        "tlsMode": "enforcing",
        "tlsServerCertPath": tmp_path / "tls" / "server-127.0.0.1.pem",
        "tlsServerKeyPath": tmp_path / "tls" / "server-127.0.0.1.key",
        "tlsServerNeedClientAuth": "true",
        "tlsServerTrustCertPath": tmp_path / "tls" / "ca.pem",
        "aclEnable": "true",
        "aclFile": SECURITY / "plain_acl.yml",
    }
    broker = {
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        "listenPort": broker_port,
        "namesrvAddr": f"127.0.0.1:{port}",
        "storePathRootDir": tmp_path / "store",
        "useTLS": "true",
        "tlsClientTrustCertPath": tmp_path / "tls" / "ca.pem",
        "tlsClientCertPath": tmp_path / "tls" / "server-127.0.0.1.pem",
        "tlsClientKeyPath": tmp_path / "tls" / "server-127.0.0.1.key",
        "accessKey": "operator",
        "secretKey": "change-me-operator",
    }
    with server(alone, "namesrv", {**strict, "listenPort": port}), server(alone, "broker", {**strict, **broker}):
        yield f"127.0.0.1:{port}"


def test_a_client_certificate_opens_the_door(alone: Cli, namesrv: str, tmp_path: Path) -> None:
    """By a context and by the environment; without it the sentence says what is missing."""
    tls = tmp_path / "tls"
    assert "does it want TLS?" in alone.refused("topic", "list", "-n", namesrv)
    alone("context", "add", "half", "-n", namesrv, "--tls-ca", str(tls / "ca.pem"), *ACCOUNT)
    assert "does it want a client certificate?" in alone.refused("topic", "list")
    certificate = ("--tls-cert", str(tls / "client.pem"), "--tls-key", str(tls / "client.key"))
    alone("context", "add", "whole", "-n", namesrv, "--tls-ca", str(tls / "ca.pem"), *certificate, *ACCOUNT, "--use")
    alone("topic", "create", "orders", "--queues", "1")
    assert alone.json("send", "orders", "hello")["sent"] == 1
    assert "hello" in alone("consume", "orders").stdout
    assert "healthy" in alone("ha", "status").stdout
    alone("context", "use", "-")
    given = {
        "NAMESRV_ADDR": namesrv,
        "TANDEMQ_TLS_CA": str(tls / "ca.pem"),
        "TANDEMQ_TLS_CERT": str(tls / "client.pem"),
        "TANDEMQ_TLS_KEY": str(tls / "client.key"),
        "TANDEMQ_ACCESS_KEY": "operator",
        "TANDEMQ_SECRET_KEY": "change-me-operator",
    }
    assert [row["topic"] for row in Cli(tmp_path, **given).json("topic", "list")] == ["orders"]
