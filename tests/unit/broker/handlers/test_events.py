"""What the console asks for: the newest lines of what happened and of what administrators did."""

from typing import Any

import msgspec
import pytest

from tandemq.broker.handlers.events import LINES_DEFAULT, EventHandlers
from tandemq.codec.codes import OperatorCode
from tandemq.codec.command import Command
from tandemq.errors import MalformedBody
from tandemq.testing.broker_parts import FakeConnection, decoded


class Lines:
    """Stands for both logs: gives the newest first, as many as are asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def newest(self, count_max: int) -> list[dict[str, Any]]:
        self.asked.append(count_max)
        return [{"atMs": 2}, {"atMs": 1}][:count_max]


def ask(lines: Any, code: int, **ext: str) -> Any:
    connection: Any = FakeConnection()
    handler: Any = EventHandlers(lines, lines).handlers()[code]
    return msgspec.json.decode(decoded(handler(connection, Command(code, ext)))[0].body)


@pytest.mark.parametrize(("code", "name"), [(OperatorCode.GET_EVENTS, "events"), (OperatorCode.GET_AUDIT, "acts")])
def test_the_newest_lines_come_first_and_no_more_than_asked_for(code: int, name: str) -> None:
    lines = Lines()
    assert ask(lines, code, countMax="1") == {name: [{"atMs": 2}]}
    assert ask(lines, code) == {name: [{"atMs": 2}, {"atMs": 1}]}
    assert lines.asked == [1, LINES_DEFAULT]


def test_a_count_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(MalformedBody, match="countMax"):
        ask(Lines(), OperatorCode.GET_EVENTS, countMax="many")
