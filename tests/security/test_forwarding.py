"""A slave hands on what its clients may do, as themselves, and nobody else can speak for them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.fault.test_pair_reasons import HOST, BrokerRole, broker
from tests.security.guarded import ACCOUNTS, send

from tandemq.broker.broker import Broker
from tandemq.broker.forwarding import CALLER, CODE, PEER
from tandemq.codec.acl import Credentials, sign
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.model.message import TRANSACTION_COMMIT, parse_offset_message_id
from tandemq.remoting.access.group_key import key_credentials
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.waiting import until

KEY = "a key that nobody guesses"
DENIED = int(ResponseCode.NO_PERMISSION)
REFUSED = int(ResponseCode.SERVICE_NOT_AVAILABLE)


def acl(directory: Path, name: str = "plain", text: str = ACCOUNTS, signs_as: str = "the-broker") -> dict[str, Any]:
    """Options of a broker with access control; its own account is `signs_as`, or none."""
    file = directory / f"{name}_acl.yml"
    file.write_text(text)
    secret = f"secret-of-{signs_as.removeprefix('the-')}" if signs_as else ""
    return {"acl_enable": True, "acl_file": str(file), "access_key": signs_as, "secret_key": secret}


def told(
    directory: Path,
    story: Callable[[Broker, Broker], Awaitable[None]],
    *,
    key: str = "",
    master_options: dict[str, Any] | None = None,
    slave_options: dict[str, Any] | None = None,
) -> None:
    """Tells a story on a pair whose slave knows its master."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            master = broker(directory / "master", BrokerRole.ASYNC_MASTER, tls=master_options or {}, shared_key=key)
            await stack.enter_async_context(master)
            place = f"{HOST}:{master.ha_port}"
            slave = broker(
                directory / "slave", BrokerRole.SLAVE, tls=slave_options or {}, ha_master_address=place, shared_key=key
            )
            await stack.enter_async_context(slave)
            if not (slave_options or {}).get("access_key", "-"):
                slave.replication.master_announced(place, master.address)  # such a slave does not find out by itself
            await until(lambda: slave.replication.reigning_address() == master.address, "the slave to know its master")
            await story(master, slave)

    asyncio.run(main())


async def ask(asked: Broker, command: Command, account: str = "") -> Command:
    """One request of an account, or of nobody."""
    credentials = Credentials(account, f"secret-of-{account}") if account else None
    async with RemotingClient(RemotingConfig(), credentials=credentials) as client:
        return await client.invoke(asked.address, Command(command.code, dict(command.ext), command.body), 10)


def forward(command: Command, caller: str = "") -> Command:
    ext = {**command.ext, CODE: str(command.code), PEER: "10.0.0.7:1"}
    if caller:
        ext[CALLER] = caller
    return Command(PairCode.FORWARD, ext, command.body)


@pytest.mark.parametrize("key", ["", KEY])
def test_a_client_may_do_through_a_slave_what_it_may_do(tmp_path: Path, key: str) -> None:
    """The slave signs with the group's key, or with a super account of its own."""

    async def story(master: Broker, slave: Broker) -> None:
        assert (await ask(slave, send("orders", b"x"), "worker")).code == 0
        assert master.store.queue_end("orders", 0) == 1
        for account, topic in (("worker", "others"), ("outsider", "orders")):
            assert (await ask(slave, send(topic, b"x"), account)).code == DENIED
        assert (await ask(slave, send("orders", b"x"))).code == DENIED
        assert master.store.queue_end("orders", 0) == 1

    options = acl(tmp_path)
    told(tmp_path, story, key=key, master_options=options, slave_options=options)


def test_the_master_checks_the_account_anew(tmp_path: Path) -> None:
    """What was taken from an account on the master is taken, though a slave has not heard of it."""

    async def story(master: Broker, slave: Broker) -> None:
        reply = await ask(slave, send("orders", b"x"), "worker")
        assert (reply.code, master.store.queue_end("orders", 0)) == (DENIED, 0), reply.remark

    fewer = ACCOUNTS.replace("topicPerms: [orders=PUB|SUB]", "topicPerms: [orders=SUB]")
    assert fewer != ACCOUNTS
    told(tmp_path, story, key=KEY, master_options=acl(tmp_path, "master", fewer), slave_options=acl(tmp_path, "slave"))


def test_what_a_request_is_found_to_touch_is_checked_for_its_client(tmp_path: Path) -> None:
    """The end of a transaction names its topic in the log only; the key that carries it opens nothing."""

    async def story(master: Broker, slave: Broker) -> None:
        half = send("secrets", b"x", TRAN_MSG="true", PGROUP="p")
        stored = await ask(master, half, "operator")
        assert stored.code == 0, stored.remark
        end = Command(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": "p",
                "tranStateTableOffset": stored.ext["queueOffset"],
                "commitLogOffset": str(parse_offset_message_id(stored.ext["msgId"])[1]),
                "commitOrRollback": str(TRANSACTION_COMMIT),
            },
        )
        assert (await ask(slave, end, "worker")).code == DENIED
        assert master.store.queue_end("secrets", 0) == 0
        assert (await ask(slave, end, "operator")).code == 0
        assert master.store.queue_end("secrets", 0) == 1

    options = acl(tmp_path)
    told(tmp_path, story, key=KEY, master_options=options, slave_options=options)


def test_nobody_but_the_group_speaks_for_others(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        for account in ("", "worker", "generous"):
            for caller in ("", "operator", account, f"whitelisted:{HOST}"):
                reply = await ask(master, forward(send("secrets", b"x"), caller), account)
                assert reply.code == DENIED, (account, caller, reply.remark)
        repeatable = forward(send("secrets", b"x"), "operator")
        repeatable.ext = sign(repeatable.ext, b"x", "operator", "secret-of-operator")
        assert (await ask(master, repeatable)).code == DENIED, "others can repeat such a signature"
        assert (await ask(master, forward(send("secrets", b"x")), "operator")).code == DENIED, "for nobody"
        assert (await ask(master, forward(send("secrets", b"x"), "ghost"), "operator")).code == DENIED
        assert master.store.queue_end("secrets", 0) == 0

    options = acl(tmp_path)
    told(tmp_path, story, key=KEY, master_options=options, slave_options=options)


def test_a_slave_without_access_control_opens_no_way_in(tmp_path: Path) -> None:
    """It does not know who asks, so its guarded master takes nothing from it, key or not."""

    async def story(master: Broker, slave: Broker) -> None:
        assert (await ask(slave, send("orders", b"x"))).code == DENIED
        claimed = send("orders", b"x")
        claimed.ext[CALLER] = "operator"
        assert (await ask(slave, claimed)).code == DENIED, "a client's own word about who it is goes no further"
        assert master.store.queue_end("orders", 0) == 0

    told(tmp_path, story, key=KEY, master_options=acl(tmp_path))


def test_a_slave_that_can_prove_nothing_refuses(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        for account in ("worker", "operator"):
            assert (await ask(slave, send("orders", b"x"), account)).code == REFUSED
        assert (master.store.queue_end("orders", 0), slave.forwarder.forwarded) == (0, 0)

    slave_options = acl(tmp_path, signs_as="")
    told(tmp_path, story, master_options=acl(tmp_path), slave_options=slave_options)


def test_with_a_key_and_no_access_control_only_the_group_forwards(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        assert (await ask(slave, send("orders", b"x"))).code == 0
        assert (await ask(master, forward(send("orders", b"x")))).code == DENIED
        async with RemotingClient(RemotingConfig(), credentials=key_credentials("another")) as stranger:
            assert (await stranger.invoke(master.address, forward(send("orders", b"x")), 10)).code == DENIED
        assert master.store.queue_end("orders", 0) == 1

    told(tmp_path, story, key=KEY)
