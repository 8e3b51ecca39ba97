"""A table for a slave of ours: what changed since the mark it names, or all of it, made in slices.

RocketMQ's slaves name no mark and get the whole table from the handlers of its family.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tandemq.broker.tables.table_file import SavedTable
from tandemq.clock import Clock, SystemClock
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.formats.table_files import file_pieces
from tandemq.remoting.slices import Slices
from tandemq.replication.metadata import MARK, SINCE

PART_KEYS_MAX: Final = 4096
"""More changes than these are told with the whole table, which is made in slices."""

_encode = msgspec.json.Encoder().encode


async def table_for_slave(
    table: SavedTable,
    command: Command,
    facts: Callable[[], Mapping[str, str]] = dict,
    clock: Clock | None = None,
) -> bytes:
    """Returns the answer to a request that has the field SINCE; `facts` are fields that are true once the body is made.

    The table may change while its text is made. The mark is that of the beginning, so such changes are told again.
    """
    since = command.ext[SINCE]
    ext = {MARK: table.changes.mark}
    keys = table.changes.since_mark(since) if since else None
    if keys is not None and len(keys) <= PART_KEYS_MAX:
        ext[SINCE] = since
        body = _encode(table.change(keys))
    else:
        slices, pieces = Slices(clock or SystemClock()), []
        for piece in file_pieces(table.members(), table.maps()):
            pieces.append(piece)
            await slices.breathe()
        body = b"".join(pieces)
    return encode_response(command.opaque, ResponseCode.SUCCESS, None, {**ext, **facts()}, body)
