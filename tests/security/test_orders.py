"""Orders between brokers prove the group's key where there is one; an operator's prove it too, or an admin account."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.fault.test_pair_reasons import HOST, BrokerRole, broker, status
from tests.security.guarded import ACCOUNTS, send

from tandemq.broker.broker import Broker
from tandemq.cli.connection import client_config_with_key, read_key_file
from tandemq.cli.ha_view import advice
from tandemq.codec.acl import Credentials, sign
from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ConfigError
from tandemq.remoting.access.group_key import key_credentials
from tandemq.remoting.access.needs import rule_of
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.metadata import PairCode
from tandemq.testing.waiting import until

KEY = "a key that nobody guesses"
ORDERS = {
    "promote": Command(PairCode.PROMOTE, {"role": "SYNC_MASTER", "force": "true"}),
    "demote": Command(PairCode.DEMOTE, {}),
    "announce": Command(PairCode.ANNOUNCE, {"masterAddress": "10.9.9.9:1", "masterHaAddress": "10.9.9.9:2"}),
    "announce as RocketMQ does": Command(RequestCode.EXCHANGE_BROKER_HA_INFO, {"masterHaAddress": "10.9.9.9:2"}),
    "ask for HA info": Command(RequestCode.EXCHANGE_BROKER_HA_INFO, {}),
}


def told(story: Callable[[Broker, Broker], Awaitable[None]], directory: Path, **options: Any) -> None:
    """Tells a story on a pair that has a key."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            master = broker(directory / "master", BrokerRole.SYNC_MASTER, shared_key=KEY, **options)
            await stack.enter_async_context(master)
            place = f"{HOST}:{master.ha_port}"
            slave = broker(directory / "slave", BrokerRole.SLAVE, ha_master_address=place, shared_key=KEY, **options)
            await stack.enter_async_context(slave)

            async def in_sync() -> bool:
                return any(one.in_sync for one in master.replication.status().replicas)  # type: ignore[union-attr]

            await until(in_sync, "the slave in sync")
            await story(master, slave)

    asyncio.run(main())


def test_nobody_orders_anything_without_the_key(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        strangers = {
            "no account": RemotingClient(RemotingConfig()),
            "another key": RemotingClient(RemotingConfig(), credentials=key_credentials("another key")),
            "an account": RemotingClient(RemotingConfig(), credentials=Credentials("admin", "secret-of-admin")),
        }
        async with AsyncExitStack() as stack:
            for stranger in strangers.values():
                await stack.enter_async_context(stranger)
                for asked in (master, slave):
                    for order in ORDERS.values():
                        reply = await stranger.invoke(asked.address, Command(order.code, dict(order.ext)), 10)
                        assert reply.code == ResponseCode.NO_PERMISSION, reply.remark
                        assert "haSharedKey" in str(reply.remark)
                # What is no order is answered as before.
                assert (await stranger.invoke(master.address, send("t", b"x"), 10)).code == ResponseCode.SUCCESS
            assert (master.is_master, slave.is_master) == (True, False)

    told(story, tmp_path)


def test_a_signature_that_others_can_repeat_is_no_proof(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        account = key_credentials(KEY)
        ext = sign({}, b"", account.access_key, account.secret_key)
        async with RemotingClient(RemotingConfig()) as client:
            reply = await client.invoke(master.address, Command(PairCode.DEMOTE, ext), 10)
            assert reply.code == ResponseCode.NO_PERMISSION

    told(story, tmp_path)


def test_with_the_key_brokers_and_operators_order(tmp_path: Path) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        async with RemotingClient(RemotingConfig(), credentials=key_credentials(KEY)) as operator:
            reply = await operator.invoke(slave.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 30)
            reply.raise_for_code(ResponseCode.SUCCESS)
            await until(lambda: slave.is_master and not master.is_master, "the roles changed")

    told(story, tmp_path)


def test_every_order_between_brokers_says_that_it_proves_the_key(tmp_path: Path) -> None:
    """Whoever adds a request to this range decides about it here."""
    reads = {PairCode.HA_DETAIL, PairCode.WAIT_FOR_METADATA}

    async def story(master: Broker, slave: Broker) -> None:
        for code, handler in master.replication.handlers().items():
            rule = rule_of(handler)
            assert rule is not None
            assert rule.proves_key or code in reads, f"{code} changes something and does not say key=True"

    told(story, tmp_path)


# --- with access control ----------------------------------------------------------------------------------------------


def with_accounts(directory: Path) -> dict[str, Any]:
    (directory / "plain_acl.yml").write_text(ACCOUNTS)
    return {
        "tls": {
            "acl_enable": True,
            "acl_file": str(directory / "plain_acl.yml"),
            "access_key": "the-broker",
            "secret_key": "secret-of-broker",
        }
    }


@pytest.mark.parametrize(
    ("account", "may"),
    [
        (key_credentials(KEY), True),
        (Credentials("operator", "secret-of-operator"), True),
        (Credentials("worker", "secret-of-worker"), False),
        (key_credentials("another"), False),
        (None, False),
    ],
)
def test_with_access_control_the_key_or_an_admin_account_orders(
    tmp_path: Path, account: Credentials | None, may: bool
) -> None:
    async def story(master: Broker, slave: Broker) -> None:
        async with RemotingClient(RemotingConfig(), credentials=account) as client:
            reply = await client.invoke(slave.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 30)
            assert (reply.code == ResponseCode.SUCCESS) == may, reply.remark
            assert may or reply.code == ResponseCode.NO_PERMISSION

    told(story, tmp_path, **with_accounts(tmp_path))


# --- what is left open ------------------------------------------------------------------------------------------------


def test_access_control_without_a_key_is_told_loudly(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with broker(tmp_path / "b", BrokerRole.SYNC_MASTER, **with_accounts(tmp_path)) as alone:
            operator = RemotingClient(RemotingConfig(access_key="operator", secret_key="secret-of-operator"))
            async with operator:
                node = await status(operator, alone)
            assert any("no haSharedKey" in line for line in advice([node]))

    with caplog.at_level("WARNING"):
        asyncio.run(main())
    assert any("no haSharedKey" in record.message for record in caplog.records)


def test_a_key_file_is_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n# a remark\n")
    assert read_key_file(file) == KEY
    config = client_config_with_key("127.0.0.1:1", file)
    assert Credentials(config.access_key, config.secret_key) == key_credentials(KEY)
    file.write_text("\n")
    for path in (file, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="--ha-key-file"):
            read_key_file(path)
