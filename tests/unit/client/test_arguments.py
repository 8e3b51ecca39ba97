"""Arguments that make no sense are refused with their name and value."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tandemq.client.arguments import (
    check_callable,
    check_close_timeout,
    check_copies,
    check_flag,
    check_group,
    check_queue,
    check_sharding_key,
    check_timeout_ms,
)
from tandemq.errors import ClientError
from tandemq.model.topic import QueueRef


@pytest.mark.parametrize(
    ("check", "value", "words"),
    [
        (check_group, None, "group=None"),
        (check_group, "", "group"),
        (check_group, "a b", "a b"),
        (check_timeout_ms, "3000", "timeout_ms='3000'"),
        (check_timeout_ms, 0, "timeout_ms=0"),
        (check_timeout_ms, -5, "timeout_ms=-5"),
        (check_timeout_ms, 2.5, "timeout_ms=2.5"),
        (check_timeout_ms, True, "timeout_ms=True"),
        (check_close_timeout, "5", "timeout='5'"),
        (check_close_timeout, -1, "timeout=-1"),
        (check_close_timeout, float("nan"), "timeout=nan"),
        (check_copies, 0, "copies=0"),
        (check_copies, "", "copies=''"),
        (check_copies, 1.5, "copies=1.5"),
        (check_copies, -1, "copies=-1"),
        (check_copies, "most", "copies='most'"),
        (partial(check_flag, name="ordered"), "no", "ordered='no'"),
        (partial(check_flag, name="ordered"), None, "ordered=None"),
        (check_sharding_key, 7, "sharding_key=7"),
        (check_sharding_key, "", "sharding_key=''"),
    ],
)
def test_a_wrong_value_is_named(check: Callable[[Any], object], value: Any, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        check(value)


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (check_group, "orders"),
        (check_timeout_ms, None),
        (check_timeout_ms, 1),
        (check_close_timeout, None),
        (check_close_timeout, 0),
        (check_close_timeout, 2.5),
        (check_copies, 2),
        (check_copies, "2:durable"),
        (check_copies, "majority"),
        (partial(check_flag, name="ordered"), False),
        (check_sharding_key, "order-1"),
    ],
)
def test_a_right_value_passes(check: Callable[[Any], object], value: Any) -> None:
    check(value)


def test_a_queue_belongs_to_the_topic_of_the_message() -> None:
    check_queue(QueueRef("T", "a", 0), "T")
    with pytest.raises(ClientError, match="is of topic 'other'"):
        check_queue(QueueRef("other", "a", 0), "T")
    with pytest.raises(ClientError, match="queue=3"):
        check_queue(3, "T")


def test_a_function_takes_one_argument() -> None:
    def one(messages: object) -> None: ...

    def none() -> None: ...

    def more(messages: object, *, option: int = 0) -> None: ...

    assert check_callable(one, "listener") is one
    check_callable(more, "listener")
    check_callable(print, "listener")
    for wrong, words in ((None, "listener=None"), (none, "one argument"), ("f", "listener='f'")):
        with pytest.raises(ClientError, match=words):
            check_callable(wrong, "listener")
