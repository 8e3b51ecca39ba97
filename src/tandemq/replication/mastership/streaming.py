"""Which bytes of a master's log go to whom next, and in which frame.  Pure."""

from typing import Final, NamedTuple

from tandemq.codec import ha_classic
from tandemq.codec import ha_session as ha
from tandemq.codec.ha_seal import FAST_SIZE_MIN, log_sum
from tandemq.replication.decisions import Batch, Decision, Send
from tandemq.replication.mastership.core import MasterCore
from tandemq.replication.mastership.followers import Followers
from tandemq.replication.session import Session


class Place(NamedTuple):
    """Log bytes whose sum is wanted, and for whom."""

    epoch: int
    offset: int
    size: int
    fast_key: bytes | None
    """Of a fast sum, which serves one session; SHA-256 serves all."""


DIGESTS_MAX: Final = 16
"""Sums of log bytes kept: of what is sent now and next, for slaves at a few different places."""


class Streaming:
    """The log on its way to each slave."""

    def __init__(self, core: MasterCore, followers: Followers) -> None:
        self._core, self._followers = core, followers
        self._frame: tuple[int, int, int, int, int, bool, bool] | None = None
        self._header = b""
        self.digests: dict[Place, bytes] = {}
        """Sums of log bytes that were sealed last, or are about to be."""

    # --- what and whom ----------------------------------------------------------------------------------------------

    def next_batch(self, session_id: int, now: float) -> Batch | None:
        """Returns what to send next on a session.

        None if it has everything, may not have more now, or is not streaming.
        """
        core, session = self._core, self._followers.sessions.get(session_id)
        if session is None or not session.is_streaming or not core.is_open:
            return None
        terms = core.terms
        stop = core.record.history.stop_of(session.sent, core.log.end)
        size_max = terms.classic_batch if session.classic else min(terms.batch, session.frame_max)
        size = min(stop - session.sent, size_max)
        if session.packs:
            size = min(size, ha.PACK_SIZE_MAX)
        if terms.rate_max is not None:
            size = min(size, session.allowance(terms.rate_max, now))
        return Batch(session.sent, size) if size > 0 else None

    def is_throttled(self, session_id: int) -> bool:
        """Returns whether a session has bytes to get that the rate cap holds back."""
        session = self._followers.sessions.get(session_id)
        return session is not None and session.is_streaming and session.sent < self._core.log.end

    # --- frames -----------------------------------------------------------------------------------------------------

    def frame_header(self, session_id: int, data: memoryview | bytes) -> bytes:
        """Returns what goes before the bytes of a batch; `data` are all of them."""
        core, session = self._core, self._followers.sessions[session_id]
        if session.classic:
            return ha_classic.encode_transfer_header(session.sent, len(data))
        session.told_confirmed = core.confirmed
        epoch = core.record.history.number_at(session.sent)
        acks = core.acks
        if session.seal is not None:
            place = self._place(session, session.sent, len(data))
            if place not in self.digests:
                self.put_digest(place, log_sum(data, place.fast_key))
            return ha.encode_sealed_data_header(
                session.seal,
                epoch,
                session.sent,
                core.confirmed,
                len(data),
                self.digests[place],
                acks.wants_durable,
                acks.is_lone,
                place.fast_key is not None,
            )
        frame = (core.number, epoch, session.sent, len(data), core.confirmed, acks.wants_durable, acks.is_lone)
        if frame != self._frame:
            # Within a reign the same place holds the same bytes: they are summed once for all slaves.
            self._frame = frame
            self._header = ha.encode_data_header(epoch, session.sent, core.confirmed, data, *frame[-2:])
        return self._header

    def digest_wanted(self, session_id: int, offset: int, size: int) -> Place | None:
        """Returns the name of log bytes that will be sealed and are not summed yet; None if there is nothing to do."""
        session = self._followers.sessions.get(session_id)
        if session is None or session.seal is None:
            return None
        place = self._place(session, offset, size)
        return None if place in self.digests else place

    def _place(self, session: Session, offset: int, size: int) -> Place:
        assert session.seal is not None
        fast = session.fast_sums and size >= FAST_SIZE_MIN
        return Place(self._core.number, offset, size, session.seal.fast_key if fast else None)

    def put_digest(self, place: Place, digest: bytes) -> None:
        """Keeps the sum of log bytes: within a reign the same place holds the same bytes."""
        self.digests[place] = digest
        while len(self.digests) > DIGESTS_MAX:
            del self.digests[next(iter(self.digests))]

    def packed_frame(self, session_id: int, data: memoryview | bytes, text: bytes = b"") -> bytes | None:
        """Returns a batch as the whole frame that a slave behind a thin link asked for; None for any other slave.

        `text` is what the bytes are packed, if the shell has done that already.
        """
        core, session = self._core, self._followers.sessions[session_id]
        if not session.packs:
            return None
        session.told_confirmed = core.confirmed
        epoch = core.record.history.number_at(session.sent)
        acks = core.acks
        frame = ha.encode_packed(epoch, session.sent, core.confirmed, data, acks.wants_durable, acks.is_lone, text)
        return frame if session.seal is None else ha.sealed(frame, session.seal)

    def sent(self, session_id: int, stop: int, now: float) -> None:
        """Notes that a frame with log bytes up to `stop` is on its way."""
        self._followers.sessions[session_id].was_sent(stop, now)

    # --- frames without bytes ---------------------------------------------------------------------------------------

    def heartbeat(self, out: list[Decision], session: Session, now: float) -> None:
        """Returns a frame without bytes: this master lives, and so much is confirmed."""
        core = self._core
        session.last_sent = now
        if session.classic:
            out.append(Send(session.id, ha_classic.encode_transfer_header(session.sent, 0)))
            return
        session.told_confirmed = core.confirmed
        frame = ha.encode_data_header(core.number, session.sent, core.confirmed, b"")
        out.append(Send(session.id, frame, session.seal))

    def news(self, out: list[Decision], now: float) -> None:
        """Sends the confirmed offset to slaves that have all bytes but do not know it; called soon after it moved."""
        for session in self._followers.sessions.values():
            if self._is_owed_news(session):
                self.heartbeat(out, session, now)

    @property
    def owes_news(self) -> bool:
        """Whether some slave has every byte but does not know that it may show them."""
        return any(self._is_owed_news(session) for session in self._followers.sessions.values())

    def _is_owed_news(self, session: Session) -> bool:
        if not session.is_streaming or session.classic:
            return False
        core = self._core
        return session.told_confirmed < min(core.confirmed, session.sent) and session.sent == core.log.end
