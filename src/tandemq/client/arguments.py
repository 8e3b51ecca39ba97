"""Checks of arguments that several public calls share: an error names the argument, its value and what is accepted."""

import inspect
from collections.abc import Callable
from typing import Any

from tandemq.errors import ClientError, ConfigError
from tandemq.model.ack_level import parse_level
from tandemq.model.topic import QueueRef, group_name_problem


def check_group(group: object) -> str:
    """Returns the name of a producer or consumer group; ClientError if it can't be one."""
    if not isinstance(group, str):
        raise ClientError(f"group={group!r}: the name of a group is a str")
    problem = group_name_problem(group)
    if problem:
        raise ClientError(problem)
    return group


def check_flag(flag: object, name: str) -> bool:
    """Returns True or False; ClientError for anything else: "no" would be taken for True."""
    if not isinstance(flag, bool):
        raise ClientError(f"{name}={flag!r}: True or False is needed")
    return flag


def check_timeout_ms(timeout_ms: object) -> None:
    """Accepts None, which stands for the configured timeout, and whole milliseconds above 0."""
    if timeout_ms is None:
        return
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 1:
        raise ClientError(f"timeout_ms={timeout_ms!r}: a whole number of milliseconds of at least 1 is needed")


def check_close_timeout(timeout: object) -> None:
    """Accepts None, which means without a limit, and seconds of at least 0."""
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:  # NaN is neither
        raise ClientError(f"timeout={timeout!r}: seconds of at least 0 are needed, or None for no limit")


def check_queue(queue: object, topic: str) -> None:
    """Accepts a queue of the message's own topic."""
    if not isinstance(queue, QueueRef):
        raise ClientError(f"queue={queue!r}: a QueueRef is needed")
    if queue.topic != topic:
        raise ClientError(f"queue={queue!r} is of topic {queue.topic!r}, the message goes to {topic!r}")


def check_copies(copies: object) -> None:
    """Accepts a number of copies or the text of an ack level, such as "majority" or "2:durable"."""
    try:
        if isinstance(copies, bool) or not isinstance(copies, (int, str)):
            raise TypeError
        parse_level(str(copies))
    except (TypeError, ConfigError):
        raise ClientError(
            f'copies={copies!r}: a number from 1 to 64, "majority" or "all" is needed, or such as "2:durable"'
        ) from None


def check_sharding_key(key: object) -> None:
    """Accepts text that is not empty."""
    if not isinstance(key, str) or not key:
        raise ClientError(f"sharding_key={key!r}: a str that is not empty is needed")


def check_callable(function: object, name: str) -> Callable[..., Any]:
    """Returns a function that can be called with one argument; ClientError if it can't."""
    if not callable(function):
        raise ClientError(f"{name}={function!r}: a function is needed")
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        raise ClientError(f"{name}={function!r}: must take one argument") from None
    except ValueError:
        pass  # a builtin without a signature: its first call will tell
    return function
