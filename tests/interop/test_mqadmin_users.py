"""The user and ACL commands of upstream's mqadmin 5.5.0 against a broker of ours with ACL 2.0 on."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers import programs, servers
from tests.peers.tools import Missing

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(300)]

VERSION = "5.5.0"
ROOT = {"ADMIN_ACCESS_KEY": "root", "ADMIN_SECRET_KEY": "secret-of-root"}
ALICE = {"ADMIN_ACCESS_KEY": "alice", "ADMIN_SECRET_KEY": "secret-of-alice"}
PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}


def mqadmin(account: dict[str, str], *lines: str) -> tuple[list[str], str]:
    """What each command printed, and the complaints of all of them."""
    command, environment = programs.java(VERSION, "Admin")
    done = subprocess.run(
        [*command, *lines], env=environment | account, capture_output=True, text=True, timeout=200, check=False
    )
    said = re.split(r"^=== .*$", done.stdout, flags=re.MULTILINE)[1:]
    assert len(said) == len(lines), f"{done.stdout}\n{done.stderr[-2000:]}"
    return said, done.stderr


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Servers]:
    try:
        programs.java(VERSION, "Admin")
    except Missing as reason:
        pytest.skip(str(reason))
    directory: Path = tmp_path_factory.mktemp("users")
    with servers.ours(directory, PROPERTIES) as started:
        yield started


def test_users_and_policies(up: servers.Servers) -> None:
    n, b = f"-n {up.namesrv}", f"-b {up.broker}"
    alice = "-s User:alice"
    said, complaints = mqadmin(
        ROOT,
        f"createUser {n} -c DefaultCluster -u alice -p secret-of-alice -t Normal",
        f"createUser {n} {b} -u bob -p secret-of-bob -t Super",
        f"updateUser {n} {b} -u bob -s disable",
        f"getUser {n} {b} -u bob",
        f"createAcl {n} {b} {alice} -r Topic:orders*,Group:g -a Pub,Sub -i 10.0.0.0/8,127.0.0.1 -d Allow",
        f"getAcl {n} {b} {alice}",
        f"updateAcl {n} {b} {alice} -r Topic:orders*,Cluster:DefaultCluster -a Pub,Sub,Get -d Allow",
        f"deleteAcl {n} {b} {alice} -r Group:g",
        f"listAcl {n} {b}",
        f"copyUser {n} -f {up.broker} -t {up.broker} -u bob",
        f"copyAcl {n} -f {up.broker} -t {up.broker} -s User:alice",
        f"deleteUser {n} {b} -u bob",
        f"listUser {n} {b}",
        f"createUser {n} {b} -u alice -p again -t Normal",
    )
    assert complaints.count("SubCommandException") == 1, complaints  # the last command's
    assert "user 'alice' exists already" in complaints
    assert re.search(r"bob\s+secret-of-bob\s+Super\s+disable", said[3])
    assert re.search(
        r"User:alice\s+Custom\s+Topic:orders\*\s+\[Pub, Sub\]\s+\[10.0.0.0/8, 127.0.0.1\]\s+Allow", said[5]
    )
    assert re.search(r"Topic:orders\*\s+\[Pub, Sub, Get\]\s+null\s+Allow", said[8])
    assert "Cluster:DefaultCluster" in said[8]
    assert "Group:g" not in said[8]
    assert "success" in said[9]
    assert "success" in said[10]
    assert [name for name in ("alice", "bob", "inner", "root") if name in said[12]] == ["alice", "inner", "root"]
    # What the policies say is in force at once, for mqadmin itself too.
    (allowed, _), complaints = mqadmin(
        ALICE,
        f"brokerStatus {n} {b}",
        f"updateTopic {n} {b} -t bills -r 1 -w 1",
    )
    assert "brokerVersionDesc" in allowed
    assert "no Create or Update permission for topic 'bills'" in complaints
