"""What a slave of ours is answered: the part that changed, or the whole table."""

import asyncio
import json

from tandemq.broker.handlers import table_answers
from tandemq.broker.handlers.table_answers import table_for_slave
from tandemq.broker.tables.offsets import OffsetTable
from tandemq.codec.command import Command, decode_command
from tandemq.codec.frame import FrameReader
from tandemq.replication.metadata import LOG_END, MARK, SINCE


def asked(table: OffsetTable, since: str) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    data = asyncio.run(table_for_slave(table, Command(43, {SINCE: since}), lambda: {LOG_END: "9"}))
    reply = decode_command(FrameReader().feed(data)[0])
    return dict(reply.ext), json.loads(bytes(reply.body))["offsetTable"]


def offsets(groups: int) -> OffsetTable:
    table = OffsetTable(lambda: 1)
    for number in range(groups):
        table.commit(f"g{number}", "T", 0, number)
    return table


def test_who_has_nothing_gets_all_and_a_mark() -> None:
    table = offsets(200)
    ext, found = asked(table, "")
    assert len(found) == 200
    assert ext == {MARK: table.changes.mark, LOG_END: "9"}


def test_who_names_a_mark_gets_what_changed_since() -> None:
    table = offsets(200)
    mark = table.changes.mark
    table.commit("g3", "T", 0, 77)
    ext, found = asked(table, mark)
    assert found == {"T@g3": {"0": 77}}
    assert ext == {MARK: table.changes.mark, SINCE: mark, LOG_END: "9"}


def test_strange_marks_get_all() -> None:
    table = offsets(3)
    run = table.changes.mark.partition(".")[0]
    for mark in ("x", "x.1", f"{run}.", f"{run}.-1", f"{run}.99", f"{run}.{'9' * 30}", offsets(3).changes.mark):
        ext, found = asked(table, mark)
        assert SINCE not in ext
        assert len(found) == 3


def test_very_many_changes_are_told_with_the_whole_table() -> None:
    table = offsets(3)
    mark = table.changes.mark
    for number in range(table_answers.PART_KEYS_MAX + 1):
        table.commit("g0", "T", number, 1)
    ext, found = asked(table, mark)
    assert SINCE not in ext
    assert len(found) == 3
