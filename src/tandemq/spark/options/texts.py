"""What stands inside an option's text: offsets and times per queue as JSON, durations, regular expressions. Pure."""

import json
import re
from typing import Any

from tandemq.errors import ConfigError

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""The numbers that stand for earliest and latest in offset JSON."""

PHYSICAL = -1
"""The queue number under which `offsets_of` gives the offset of a whole store."""

TIME_MIN_MS, TIME_MAX_MS = 10**11, 10**14
"""Times outside of these (1973 to 5138) are seconds or microseconds by mistake; 0 means the beginning."""

ByQueue = dict[str, dict[int, int]]
"""topic, broker/topic or store -> queue -> number."""


def offsets_of(text: str, name: str) -> str | ByQueue:
    """Returns earliest, latest, or the offsets of JSON by topic (or broker/topic) and queue."""
    if text in (EARLIEST, LATEST):
        return text
    if not text.lstrip().startswith("{"):
        raise ConfigError(f'{name}={text!r}: must be earliest, latest or JSON like {{"topic": {{"0": 100}}}}')
    return _by_queue(text, name, EARLIEST_NUMBER, "an offset: a whole number, -2 for earliest or -1 for latest")


def times_of(text: str, name: str) -> ByQueue:
    """Returns the times of JSON by topic (or broker/topic) and queue."""
    found = _by_queue(text, name, 0, "a time in ms since 1970")
    for topic, queues in found.items():
        for queue, time in queues.items():
            check_time(f"{name}: {topic!r} queue {queue}", time)
    return found


def check_time(name: str, time_ms: int) -> None:
    """Raises ConfigError for a time that is no number of milliseconds since 1970, to all appearances."""
    if time_ms and not TIME_MIN_MS <= time_ms < TIME_MAX_MS:
        guess = "seconds" if time_ms < TIME_MIN_MS else "microseconds"
        raise ConfigError(
            f"{name}={time_ms}: must be 0 or from {TIME_MIN_MS} to {TIME_MAX_MS} ms since 1970; are these {guess}?"
        )


def _by_queue(text: str, name: str, lowest: int, kind: str) -> ByQueue:
    given = json_of(name, text)
    if not isinstance(given, dict) or not given:
        raise ConfigError(f'{name}={text!r}: must be JSON like {{"topic": {{"0": 100}}}}')
    result: ByQueue = {}
    for topic, queues in given.items():
        if type(queues) is int:  # physical order: {"store label": offset}
            queues = {PHYSICAL: queues}
        elif not isinstance(queues, dict) or not queues:
            raise ConfigError(f"{name}: {topic!r} needs an object of queue: number, not {queues!r}")
        result[topic] = {}
        for queue, number in queues.items():
            if queue != PHYSICAL and not (isinstance(queue, str) and queue.isdecimal()):
                raise ConfigError(f"{name}: {topic!r}: {queue!r} is no queue; queues are numbers from 0")
            if type(number) is not int or number < lowest:
                place = "" if queue == PHYSICAL else f" queue {queue!r}"
                raise ConfigError(f"{name}: {topic!r}{place}: {number!r} must be {kind}")
            result[topic][int(queue)] = number
    return result


def milliseconds(name: str, text: str) -> int:
    """Returns the milliseconds of 500ms, 30s, 15m, 1h."""
    match = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h)\s*", text)
    if not match:
        raise ConfigError(f"{name}={text!r}: a time like 500ms, 30s, 15m or 1h expected")
    return int(match[1]) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[match[2]]


def json_of(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r}: not JSON: {error}") from None


def regex_of(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{name}={text!r}: no regular expression: {error}") from None


def listed(text: str) -> tuple[str, ...]:
    """Returns the parts of a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
