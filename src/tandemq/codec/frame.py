"""Length-prefixed frames: bytes in, frames out.

| offset | size      | meaning                                                    |
|--------|-----------|------------------------------------------------------------|
| 0      | 4         | bytes that follow this field = 4 + header size + body size |
| 4      | 1         | how the header is encoded: 0 JSON, 1 ROCKETMQ binary       |
| 5      | 3         | header size                                                |
| 8      | header    | the header                                                 |
| ...    | the rest  | the body, opaque                                           |

A frame that breaks its own sizes or a limit ends the connection (as NettyDecoder does): after it the start of the next
frame is unknown. `FrameReader` copies a body at most once (when it came in several reads) and holds at most one
unfinished frame.
"""

import struct

from tandemq.errors import CodecError, FrameTooLarge, MalformedHeader

JSON = 0
ROCKETMQ = 1

FRAME_SIZE_MAX = 16 * 1024 * 1024
"""Upstream's com.rocketmq.remoting.frameMaxLength, the first length field included."""

HEADER_SIZE_MAX = 256 * 1024
"""The largest legitimate header is a send with 32,767 bytes of properties, six-fold when every byte is escaped."""

Frame = tuple[int, bytes, memoryview]
"""(header encoding, header, body). The body is a view of what was received: copy it to keep it."""

_PREFIX = struct.Struct(">II")
_EMPTY = memoryview(b"")


def encode_frame(encoding: int, header: bytes, body: bytes | memoryview = b"") -> bytes:
    """Returns one frame ready to be written."""
    header_size = len(header)
    return b"".join((_PREFIX.pack(4 + header_size + len(body), encoding << 24 | header_size), header, body))


class FrameReader:
    """Takes any split of the byte stream; gives whole frames in order.

    The stream starts at a frame boundary. Look at `error` after every `feed`: when it is set, the start of the next
    frame is unknown and the connection must end.
    """

    __slots__ = ("_needed", "_pending", "error", "frame_size_max", "header_size_max")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX, header_size_max: int = HEADER_SIZE_MAX) -> None:
        self.frame_size_max = frame_size_max
        self.header_size_max = header_size_max
        self.error: CodecError | None = None
        """FrameTooLarge or MalformedHeader: why nothing more can be read; `feed` raises it from then on."""
        self._pending = bytearray()
        """The start of a frame that is not complete; a fresh object per frame, because views of the old one live on."""
        self._needed = 8
        """How many bytes `_pending` must have before another look is worth it."""

    @property
    def pending_size(self) -> int:
        """Returns the number of bytes held of a frame whose rest has not come."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that `data` completes, also those before a broken one; `error` then says what broke."""
        if self.error is not None:
            raise self.error
        chunk: bytes | bytearray = data
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return []
            chunk = self._pending
        frames: list[Frame] = []
        position, stop = 0, len(chunk)
        view = memoryview(chunk)
        frame_size_max, header_size_max, unpack = self.frame_size_max, self.header_size_max, _PREFIX.unpack_from
        while stop - position >= 8:
            frame_size, encoding_and_size = unpack(chunk, position)
            header_size = encoding_and_size & 0xFFFFFF
            start = position + 8
            body_start = start + header_size
            end = position + 4 + frame_size
            if end - position > frame_size_max or header_size > header_size_max or body_start > end:
                self.error = self._refusal(frame_size, header_size)
                self._pending = bytearray()
                return frames
            if end > stop:
                self._keep(view[position:], end - position)
                return frames
            header = bytes(chunk[start:body_start])  # no copy of its own when `chunk` is bytes
            frames.append((encoding_and_size >> 24, header, view[body_start:end] if body_start < end else _EMPTY))
            position = end
        if position < stop or self._pending:
            self._keep(view[position:], 8)
        return frames

    def _keep(self, rest: memoryview, needed: int) -> None:
        self._needed = needed
        if len(rest) != len(self._pending):  # equal sizes mean that nothing of `_pending` was used, or both are empty
            self._pending = bytearray(rest)

    def _refusal(self, frame_size: int, header_size: int) -> CodecError:
        if frame_size + 4 > self.frame_size_max:
            return FrameTooLarge(f"frame of {frame_size + 4} bytes announced, the limit is {self.frame_size_max}")
        if header_size + 4 > frame_size:
            return MalformedHeader(f"header of {header_size} bytes announced in a frame of {frame_size + 4}")
        return FrameTooLarge(f"header of {header_size} bytes announced, the limit is {self.header_size_max}")
