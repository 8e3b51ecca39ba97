"""The real clients' signatures and TLS: each signs in its own way, and all of them are believed; forgeries are not."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers import servers, stories
from tests.peers.programs import JAVA_VERSIONS
from tests.peers.tools import Missing

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

ACCOUNTS = """
accounts:
- accessKey: operator-key
  secretKey: operator-secret
  admin: true
"""
SIGNED = {"ROCKETMQ_ACCESS_KEY": "operator-key", "ROCKETMQ_SECRET_KEY": "operator-secret"}
FORGED = {**SIGNED, "ROCKETMQ_SECRET_KEY": "guessed-secret"}
TLS = {**SIGNED, "JAVA_TOOL_OPTIONS": "-Dtls.enable=true"}  # the client trusts any certificate unless told otherwise

JAVA = [f"java-{version}" for version in JAVA_VERSIONS]

# The stories that between them use every kind of request the client has.
STORIES = {
    **{client: ["send-sync", "send-batch", "lite-pull", "tags", "ordered", "transaction", "query"] for client in JAVA},
    "go": ["send-sync", "send-batch", "pull", "tags", "ordered", "retry-dead-letter", "transaction"],
    "node": ["send-sync", "tags", "rebalance", "offsets-survive"],
    "cpp": ["send-sync", "send-batch", "pull", "tags", "ordered", "offsets-survive"],
}


@pytest.fixture(scope="module")
def signed_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Servers]:
    """Servers whose broker wants signed requests."""
    where = tmp_path_factory.mktemp("signed")
    (where / "plain_acl.yml").write_text(ACCOUNTS)
    settings = {**servers.STORY_PROPERTIES, "aclEnable": "true", "aclFile": str(where / "plain_acl.yml")}
    with servers.ours(where / "servers", settings) as up:
        yield up


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Servers]:
    """Servers whose broker wants signed requests over TLS, and whose name server takes TLS too."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    where = tmp_path_factory.mktemp("encrypted")
    (where / "plain_acl.yml").write_text(ACCOUNTS)
    tls = _certificate(where)
    settings = {**servers.STORY_PROPERTIES, "aclEnable": "true", "aclFile": str(where / "plain_acl.yml")}
    with servers.ours(
        where / "servers",
        {**settings, **tls, "tlsMode": "enforcing"},
        namesrv_properties={**tls, "tlsMode": "permissive"},
    ) as up:
        yield up


def _certificate(where: Path) -> dict[str, str]:
    key, certificate = where / "key.pem", where / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2", "-nodes", "-newkey", "rsa:2048"]
    subprocess.run(
        ["openssl", "req", "-x509", *subject, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return {"tlsServerCertPath": str(certificate), "tlsServerKeyPath": str(key)}


def _tell(client: str, up: servers.Servers, environment: dict[str, str], *names: str) -> stories.Told:
    try:
        return stories.tell(client, up, *names, environment=environment)
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("client", STORIES)
def test_signed_requests_are_believed(client: str, signed_only: servers.Servers) -> None:
    """Every story works when the client signs with the account's secret."""
    told = _tell(client, signed_only, SIGNED, *STORIES[client])
    for story in STORIES[client]:
        told.check(story)


@pytest.mark.parametrize("client", [JAVA[0], "go", "node", "cpp"])
def test_a_wrong_secret_is_refused(client: str, signed_only: servers.Servers) -> None:
    """Nothing is sent with a signature made from another secret."""
    told = _tell(client, signed_only, FORGED, "send-sync")
    assert told.outcomes.get("send-sync", ("FAIL", ""))[0] == "FAIL", told.output
    assert "does not fit" in signed_only.said()


@pytest.mark.parametrize("client", JAVA)
def test_tls(client: str, encrypted: servers.Servers) -> None:
    """The Java client over TLS, to a broker that takes nothing else."""
    told = _tell(client, encrypted, TLS, *STORIES[client])
    for story in STORIES[client]:
        told.check(story)
