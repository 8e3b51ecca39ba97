"""Answers that may have a hundred thousand entries: written a few at a time, and cut before they are no frame any more.

Whoever asks for such an answer waits for it; everybody else is served in between. What does not fit is counted in the
answer's remark, because a frame beyond the limit would end the connection.
"""

from collections.abc import Iterable
from typing import Any

from tandemq.clock import Clock
from tandemq.codec import fastjson
from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, encode_response
from tandemq.remoting.slices import Slices

SIZE_MAX = 15 << 20
"""Bytes of an answer's entries; a frame has 16 MiB with everything."""


def member(key: Any, value: Any) -> bytes:
    """Returns one member of a JSON object, as `dumps_unquoted` would write it there."""
    return fastjson.dumps_unquoted({key: value})[1:-1]


def quoted_member(key: str, value: Any) -> bytes:
    """Returns one member of a JSON object, as `dumps` would write it there."""
    return fastjson.dumps({key: value})[1:-1]


class LongAnswer:
    """The entries of one answer, whichever of its lists and maps they belong to."""

    def __init__(self, clock: Clock, size_max: int = SIZE_MAX) -> None:
        self._slices = Slices(clock)
        self._size_max = size_max
        self._size = 0
        self.cut = 0
        """Entries that did not fit."""

    async def joined(self, entries: Iterable[bytes]) -> bytes:
        """Returns the entries with commas between them. They are made while others have their turn, so that what
        gives them must survive changes of its tables."""
        pieces = []
        for entry in entries:
            if self._size + len(entry) > self._size_max:
                self.cut += 1
            else:
                self._size += len(entry) + 1
                pieces.append(entry)
            await self._slices.breathe()
        return b",".join(pieces)

    async def breathe(self) -> None:
        """Lets others have their turn when it is time."""
        await self._slices.breathe()

    def encoded(self, command: Command, body: bytes, ext: dict[str, str] | None = None) -> bytes:
        """Returns the answer, which says if something is missing in it."""
        remark = f"cut: {self.cut} more entries don't fit into one answer" if self.cut else None
        return encode_response(command.opaque, ResponseCode.SUCCESS, remark, ext, body)
