"""The group's key as an account: it signs for one connection, and nothing else stands in for it."""

from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.codec.acl import SessionCheck, SessionSigner, sign
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.access.group_key import KEY_ACCOUNT, KeyAccount, key_credentials
from tandemq.remoting.access.needs import UPDATE, needs, on_cluster, rule_of

CHALLENGE = bytes(16)


@needs(on_cluster(UPDATE), key=True)
def order(connection: Any, command: Command) -> bytes:
    return b"done"


@needs(on_cluster(UPDATE))
def other(connection: Any, command: Command) -> bytes:
    return b"done"


def connection() -> Any:
    return SimpleNamespace(session_check=SessionCheck(CHALLENGE, 0, 0))


def test_an_order_passes_once_with_the_key_and_not_without() -> None:
    account = KeyAccount("key")
    handlers = account.guard({1: order, 2: other}, lambda: 0.0)
    assert rule_of(handlers[1]) is rule_of(order)
    assert handlers[2] is other
    link = connection()
    for refused in (Command(1, {}), Command(1, sign({}, b"", *key_credentials("key")[:2]))):
        with pytest.raises(ReplyError, match="haSharedKey"):
            handlers[1](link, refused)
    command = Command(1, {})
    SessionSigner(key_credentials("key"), CHALLENGE, 0, lambda: 0).sign(command)
    assert handlers[1](link, command) == b"done"
    with pytest.raises(ReplyError, match="was used before"):
        handlers[1](link, command)
    with pytest.raises(ReplyError, match="without a challenge"):
        handlers[1](SimpleNamespace(session_check=None), command)


def test_what_is_spared_needs_no_proof() -> None:
    handlers = KeyAccount("key").guard({1: order}, lambda: 0.0, lambda command: "ask" in command.ext)
    assert handlers[1](connection(), Command(1, {"ask": ""})) == b"done"


def test_the_account_is_found_by_its_name_and_its_secret_is_not_the_key() -> None:
    account = KeyAccount("key")
    assert account.find(KEY_ACCOUNT) is account
    assert account.find("somebody") is None
    assert not account.trusts("127.0.0.1")
    assert "key" not in key_credentials("key").secret_key
