"""Accounts change while a broker runs: the file is read again, users and policies are made by requests."""

import asyncio
import json
import logging
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.security.guarded import ACCOUNTS, Guarded, run

from tandemq.broker.broker import Broker
from tandemq.codec.codes import RequestCode as Code
from tandemq.codec.command import Command
from tandemq.errors import ConnectionLost
from tandemq.remoting.access.accounts import Accounts
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.testing.local_cluster import LocalCluster
from tandemq.testing.waiting import until

FIRST = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
INNER = json.dumps({"accessKey": "inner", "secretKey": "secret-of-inner"})
ROOT = json.dumps({"username": "root", "password": "secret-of-root"})


async def answers(guarded: Guarded, account: str, topic: str, code: int) -> bool:
    return (await guarded.send(account, topic)).code == code


def test_a_changed_file_is_in_force_within_a_second_or_two(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        assert await answers(guarded, "worker", "bills", 16)
        guarded.accounts.write_text(ACCOUNTS.replace("orders=PUB|SUB", "bills=PUB"))
        accounts = guarded.broker.accounts
        assert accounts is not None
        worker = accounts.control.account("worker")
        await until(lambda: accounts.control.account("worker") is not worker, "the file to be read again")
        assert await answers(guarded, "worker", "bills", 0)
        assert await answers(guarded, "worker", "orders", 16)
        guarded.accounts.write_text("accounts: [broken")
        assert not accounts.reload()
        assert await answers(guarded, "worker", "bills", 0)

    run(tmp_path, story)


def test_a_changed_file_is_read_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a megabyte of it took 1.6 s of the loop."""
    threads: dict[int, str] = {}
    real = Accounts.reload

    def reload(self: Accounts) -> bool:
        threads[id(self)] = threading.current_thread().name
        return real(self)

    monkeypatch.setattr(Accounts, "reload", reload)

    async def story(guarded: Guarded) -> None:
        await until(lambda: len(threads) == 2, "broker and name server to look at their file")
        assert "MainThread" not in threads.values()

    run(tmp_path, story)


def test_the_connections_of_an_account_end_with_it(tmp_path: Path) -> None:
    """A parked pull would go on delivering."""

    async def story(guarded: Guarded) -> None:
        connection = await guarded.client("worker").connection(guarded.broker.address)
        assert await answers(guarded, "worker", "orders", 0)
        guarded.accounts.write_text(ACCOUNTS.replace("accessKey: worker", "accessKey: retired"))
        await until(lambda: not connection.is_open, "the connection to be closed")
        assert await answers(guarded, "worker", "orders", 16)

    run(tmp_path, story)


class Users:
    """Brokers with ACL 2.0, and clients of users made at run time."""

    def __init__(self, cluster: LocalCluster, broker: Broker) -> None:
        self.cluster, self.broker = cluster, broker
        self._clients: dict[tuple[str, str], RemotingClient] = {}

    async def ask(
        self,
        user: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: object = None,
        *,
        address: str = "",
        secret: str = "",
    ) -> Command:
        key = user, secret or f"secret-of-{user}"
        if key not in self._clients:
            self._clients[key] = RemotingClient(RemotingConfig(access_key=key[0], secret_key=key[1]))
        encoded = json.dumps(body).encode() if body is not None else b""
        return await self._clients[key].invoke(
            address or self.broker.address, Command(code, dict(ext or {}), encoded), 10
        )

    async def ok(self, user: str, code: int, ext: dict[str, str] | None = None, body: object = None) -> bytes:
        answer = await self.ask(user, code, ext, body)
        assert answer.code == 0, answer.remark
        return bytes(answer.body)

    async def create(self, name: str, **info: str) -> None:
        await self.ok("root", Code.AUTH_CREATE_USER, {"username": name}, {"password": f"secret-of-{name}", **info})

    async def allow(self, name: str, resource: str, *actions: str, decision: str = "Allow", ips: object = None) -> None:
        entry = {"resource": resource, "actions": list(actions), "sourceIps": ips, "decision": decision}
        policies = [{"policyType": "Custom", "entries": [entry]}]
        body = {"subject": f"User:{name}", "policies": policies}
        await self.ok("root", Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def tell(directory: Path, story: object, **properties: str) -> None:
    async def main() -> None:
        common = {**FIRST, "initAuthenticationUser": ROOT, "innerClientAuthenticationCredentials": INNER, **properties}
        async with LocalCluster(directory, properties=common) as cluster:
            users = Users(cluster, await cluster.add_broker())
            try:
                await story(users)  # type: ignore[operator]
            finally:
                await users.close()

    asyncio.run(main())


READ_OFFSET = {"topic": "orders", "queueId": "0"}


def test_users_and_policies_are_made_and_in_force_at_once(tmp_path: Path) -> None:
    async def story(users: Users) -> None:
        await users.create("alice")
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 16
        await users.allow("alice", "Topic:ord*", "Get")
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 0
        await users.allow("alice", "Topic:orders", "Get", decision="Deny")
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 16
        await users.ok("root", Code.AUTH_DELETE_ACL, {"subject": "User:alice", "resource": "Topic:orders"})
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 0
        await users.allow("alice", "Topic:ord*", "Get", ips=["10.0.0.0/8"])
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 16
        await users.allow("alice", "Topic:ord*", "Get", ips=["127.0.0.0/8"])
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 0
        await users.ok("root", Code.AUTH_UPDATE_USER, {"username": "alice"}, {"password": "another"})
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 16
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET, secret="another")).code == 0
        await users.ok("root", Code.AUTH_DELETE_USER, {"username": "alice"})
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET, secret="another")).code == 16

    tell(tmp_path, story)


def test_they_survive_a_restart_in_a_file_of_their_own(tmp_path: Path) -> None:
    async def story(users: Users) -> None:
        await users.create("alice")
        await users.allow("alice", "Topic:orders", "Get")
        users.broker = await users.cluster.restart(users.broker)
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET)).code == 0
        file = users.broker.root / "config" / "auth.json"
        assert file.stat().st_mode & 0o777 == 0o600

    tell(tmp_path, story)


def test_passwords_are_told_to_super_users_only(tmp_path: Path) -> None:
    """Who may look at the cluster must not learn how to become its administrator."""

    async def story(users: Users) -> None:
        await users.create("watcher")
        await users.allow("watcher", "Cluster:DefaultCluster", "Get")
        for code, ext in ((Code.AUTH_GET_USER, {"username": "root"}), (Code.AUTH_LIST_USER, {})):
            assert b"secret-of-root" in await users.ok("root", code, ext)
            assert b"secret-of" not in await users.ok("watcher", code, ext)
        listed = json.loads(await users.ok("watcher", Code.AUTH_LIST_USER))
        assert [user["username"] for user in listed] == ["inner", "root", "watcher"]

    tell(tmp_path, story)


def test_who_may_manage_users_can_neither_make_nor_change_super_users_nor_itself(tmp_path: Path) -> None:
    async def story(users: Users) -> None:
        await users.create("manager")
        await users.allow("manager", "Cluster:*", "Update", "Get")
        await users.ok("manager", Code.AUTH_CREATE_USER, {"username": "bob"}, {"password": "p"})
        entry = {"resource": "*", "actions": ["All"], "decision": "Allow"}
        for code, ext, body in (
            (Code.AUTH_CREATE_USER, {"username": "evil"}, {"password": "p", "userType": "Super"}),
            (Code.AUTH_UPDATE_USER, {"username": "bob"}, {"userType": "Super"}),
            (Code.AUTH_UPDATE_USER, {"username": "root"}, {"password": "p"}),
            (Code.AUTH_UPDATE_USER, {"username": "manager"}, {"password": "p"}),
            (Code.AUTH_DELETE_USER, {"username": "root"}, None),
            (Code.AUTH_CREATE_ACL, {}, {"subject": "User:manager", "policies": [{"entries": [entry]}]}),
            (Code.AUTH_DELETE_ACL, {"subject": "User:root"}, None),
        ):
            assert (code, (await users.ask("manager", code, ext, body)).code) == (code, 16)

    tell(tmp_path, story)


def test_requests_that_make_no_sense_are_answered_with_the_reason(tmp_path: Path) -> None:
    async def story(users: Users) -> None:
        await users.create("alice")
        entry = {"resource": "Topic:T", "actions": ["Read"], "decision": "Allow"}
        for code, ext, body, reason in (
            (Code.AUTH_CREATE_USER, {"username": "alice"}, {"password": "p"}, "exists already"),
            (Code.AUTH_CREATE_USER, {"username": "x"}, {}, "password"),
            (Code.AUTH_CREATE_USER, {}, {"password": "p"}, "username"),
            (Code.AUTH_UPDATE_USER, {"username": "nobody"}, {"password": "p"}, "no user 'nobody'"),
            (Code.AUTH_CREATE_ACL, {}, {"subject": "User:alice", "policies": []}, "no policy entry"),
            (Code.AUTH_CREATE_ACL, {}, {"subject": "User:alice", "policies": [{"entries": [entry]}]}, "Read"),
            (Code.AUTH_GET_ACL, {"subject": "alice"}, None, "User:NAME"),
            (Code.AUTH_DELETE_ACL, {"subject": "User:alice"}, None, "no policies"),
        ):
            answer = await users.ask("root", code, ext, body)
            assert answer.code != 0
            assert reason in (answer.remark or "")
        assert await users.ok("root", Code.AUTH_GET_USER, {"username": "nobody"}) == b""
        assert await users.ok("root", Code.AUTH_GET_ACL, {"subject": "User:alice"}) == b""

    tell(tmp_path, story)


def test_a_slave_has_its_masters_users(tmp_path: Path) -> None:
    """A slave serves reads and may be promoted: who was locked out of the master must be locked out of it too."""

    async def story(users: Users) -> None:
        slave = await users.cluster.add_broker(broker_id=1)
        assert slave.accounts is not None
        table = slave.accounts.users
        await users.create("alice")
        await users.allow("alice", "Topic:orders", "Get")
        await until(lambda: table.user("alice") is not None and bool(table.policies("alice")), "the slave to learn")
        assert (await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET, address=slave.address)).code == 0
        answer = await users.ask(
            "root", Code.AUTH_CREATE_USER, {"username": "x"}, {"password": "p"}, address=slave.address
        )
        assert (answer.code, "ask the master" in (answer.remark or "")) == (1, True)
        await users.ok("root", Code.AUTH_UPDATE_USER, {"username": "alice"}, {"userStatus": "disable"})
        await until(lambda: table.user("alice").status == "disable", "the slave to learn")  # type: ignore[union-attr]
        codes = []
        for _ in range(3):
            with suppress(ConnectionLost):  # once, at any moment: the slave closes what a disabled account has open
                answer = await users.ask("alice", Code.GET_MAX_OFFSET, READ_OFFSET, address=slave.address)
                codes.append(answer.code)
        assert set(codes) == {16}

    tell(tmp_path, story)


def test_where_no_access_is_controlled_no_user_can_be_planted(tmp_path: Path) -> None:
    """It would come into force, unseen, on the day that access control is turned on."""

    async def main() -> None:
        async with LocalCluster(tmp_path) as cluster, RemotingClient(RemotingConfig()) as client:
            broker = await cluster.add_broker()
            body = b'{"password":"p","userType":"Super"}'
            answer = await client.invoke(broker.address, Command(Code.AUTH_CREATE_USER, {"username": "evil"}, body), 10)
            assert (answer.code, "authenticationEnabled" in (answer.remark or "")) == (1, True)
            assert not (broker.root / "config" / "auth.json").exists()

    asyncio.run(main())


def test_every_act_of_an_administrator_is_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who, from where, what, outcome; refused or not; and no secret in it."""

    async def story(users: Users) -> None:
        with caplog.at_level(logging.INFO, "tandemq.audit"):
            await users.create("alice")
            ext = {"topic": "new", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
            assert (await users.ask("alice", Code.UPDATE_AND_CREATE_TOPIC, ext)).code == 16
            await users.ok("root", Code.UPDATE_AND_CREATE_TOPIC, ext)
            assert (await users.ask("root", Code.UPDATE_BROKER_CONFIG, {}, "x")).code != 0
            assert (await users.ask("root", Code.DELETE_TOPIC_IN_BROKER, {"topic": "new"}, secret="guess")).code == 16
        lines = [record.getMessage() for record in caplog.records if record.name.startswith("tandemq.audit")]
        assert not any("secret-of" in line or "SignNonce" in line for line in lines)
        told = [" ".join(part for part in line.split() if not part.startswith("from=")) for line in lines]
        assert told[0] == "who='root' what=AUTH_CREATE_USER username='alice' outcome='ok'"
        assert told[1].startswith("who='alice' what=UPDATE_AND_CREATE_TOPIC")
        assert "code 16: access refused" in told[1]
        assert told[2].endswith("topic='new' writeQueueNums='1' outcome='ok'")
        assert told[3].startswith("who='root' what=UPDATE_BROKER_CONFIG")
        assert told[4].startswith("who='?root' what=DELETE_TOPIC_IN_BROKER topic='new' outcome=")
        assert all("from=127.0.0.1:" in line for line in lines)

    tell(tmp_path, story)


def test_an_account_above_its_quota_is_told_that_the_broker_is_busy(tmp_path: Path) -> None:
    """Upstream's code and mark, so that its clients slow down. Administrators are never locked out."""

    async def story(guarded: Guarded) -> None:
        codes = [(await guarded.ask("generous", Code.GET_BROKER_RUNTIME_INFO)).code for _ in range(40)]
        assert codes[:5] == [0] * 5
        assert set(codes) == {0, 2}
        assert {(await guarded.ask("operator", Code.GET_BROKER_RUNTIME_INFO)).code for _ in range(40)} == {0}
        answer = await guarded.ask("worker", Code.GET_BROKER_RUNTIME_INFO, {}, b"x" * 200_000)
        assert answer.code == 0
        busy = await guarded.ask("worker", Code.GET_BROKER_RUNTIME_INFO)
        assert (busy.code, "start flow control" in (busy.remark or "")) == (2, True)

    run(tmp_path, story, requestsPerAccountMax="10", bytesPerAccountMax="100000")
