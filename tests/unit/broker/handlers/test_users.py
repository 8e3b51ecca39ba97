"""Users and policies by request: what is answered, and what is cut short."""

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.broker.handlers import users as module
from tandemq.broker.handlers.users import UserHandlers
from tandemq.broker.tables.snapshots import SnapshotFile
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.access.users import CUSTOM, UserTable, entry_of
from tandemq.testing.broker_parts import FakeConnection, decoded

LINK: Any = FakeConnection()


def handlers(tmp_path: Path, *names: str, is_slave: bool = False) -> tuple[UserHandlers, UserTable]:
    table = UserTable(lambda: 1)
    for name in names:
        table.create(name, "password")
    file = SnapshotFile(tmp_path / "auth.json", table.snapshot)
    return UserHandlers(table, file, is_slave=lambda: is_slave, is_taken=lambda name: name == "plain"), table


def answer(data: bytes) -> Command:
    (command,) = decoded(data)
    return command


def test_long_lists_are_cut_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTED_MAX", 2)
    served, table = handlers(tmp_path, "a", "b", "c")
    for name in ("a", "b", "c"):
        table.put_entries(name, {CUSTOM: [entry_of("*", ["All"], (), "Allow")]})
    for handler in (served.list_users, served.list_acls):
        told = answer(asyncio.run(handler(LINK, Command(3005))))
        assert len(json.loads(bytes(told.body))) == 2
        assert told.remark == "2 of 3 are shown: name a filter"


def test_names_of_plain_accounts_are_taken(tmp_path: Path) -> None:
    served, _ = handlers(tmp_path)
    with pytest.raises(ReplyError, match="account of plain"):
        asyncio.run(served.create_user(LINK, Command(3001, {"username": "plain"}, b'{"password":"p"}')))


def test_slaves_change_nothing(tmp_path: Path) -> None:
    served, table = handlers(tmp_path, "a", is_slave=True)
    for call in (served.delete_user, served.update_user):
        with pytest.raises(ReplyError, match="ask the master"):
            asyncio.run(call(LINK, Command(3003, {"username": "a"}, b'{"userStatus":"disable"}')))
    assert table.user("a") is not None


def test_the_whole_table_is_for_administrators(tmp_path: Path) -> None:
    served, table = handlers(tmp_path, "a")
    assert json.loads(bytes(answer(asyncio.run(served.everything(LINK, Command(32122)))).body)) == table.snapshot()
    command = Command(32122)
    command.caller = SimpleNamespace(name="a", is_admin=False)
    with pytest.raises(ReplyError, match="admins"):
        asyncio.run(served.everything(LINK, command))


def test_what_takes_long_is_done_beside_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of addresses took 0.7 s to read, and a list of all policies a second to write."""
    threads: list[str] = []

    def watched(name: str) -> None:
        real = getattr(module, name)

        def watch(*given: Any) -> Any:
            threads.append(threading.current_thread().name)
            return real(*given)

        monkeypatch.setattr(module, name, watch)

    for name in ("_acl_told", "_acl_json", "_user_json"):
        watched(name)
    served, _ = handlers(tmp_path, "a")
    entry = {"resource": "Topic:t", "actions": ["Pub"], "sourceIps": ["10.0.0.1"], "decision": "Allow"}
    told = {"subject": "User:a", "policies": [{"policyType": "Custom", "entries": [entry]}]}

    async def story() -> None:
        assert answer(await served.put_acl(LINK, Command(3006, {}, json.dumps(told).encode()))).code == 0
        for handler, ext in ((served.get_acl, {"subject": "User:a"}), (served.list_acls, {}), (served.list_users, {})):
            assert json.loads(bytes(answer(await handler(LINK, Command(3009, ext))).body))

    asyncio.run(story())
    assert len(threads) == 4
    assert "MainThread" not in threads
