"""What an account may use per second."""

import contextlib

import pytest

from tandemq.errors import ReplyError
from tandemq.remoting.access import quotas
from tandemq.remoting.access.quotas import Quotas


def taken(limits: Quotas, count: int, size: int, now: float, account: str = "a") -> int:
    """How many of `count` requests pass."""
    passed = 0
    for _ in range(count):
        with contextlib.suppress(ReplyError):
            limits.take(account, size, now)
            passed += 1
    return passed


def test_requests_come_back_evenly() -> None:
    limits = Quotas(10, 0)
    assert taken(limits, 20, 100, 0.0) == 10
    assert taken(limits, 20, 100, 0.5) == 5
    assert taken(limits, 20, 100, 100.0) == 10
    assert taken(limits, 20, 100, 100.0, "b") == 10


def test_the_answer_is_the_one_that_clients_know_as_busy() -> None:
    limits = Quotas(1, 0)
    limits.take("a", 1, 0.0)
    with pytest.raises(ReplyError, match="flow control") as caught:
        limits.take("a", 1, 0.0)
    assert caught.value.code == 2


def test_bytes_may_be_overdrawn_once() -> None:
    """A request larger than a second's worth passes, and is paid for afterwards."""
    limits = Quotas(0, 1000)
    assert taken(limits, 2, 3000, 0.0) == 1
    assert taken(limits, 1, 1, 1.9) == 0
    assert taken(limits, 1, 1, 2.1) == 1


def test_the_table_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "ACCOUNTS_MAX", 2)
    limits = Quotas(1, 0)
    for account in "abcd":
        limits.take(account, 1, 0.0)
    assert len(limits._left) <= 2
