"""A frame is sealed when it leaves, not when it was decided on: seals count frames as the wire has them."""

from tandemq.codec.ha_seal import Seal
from tandemq.codec.ha_session import Ack, SessionReader, encode_ack
from tandemq.replication.decisions import Send


def test_frames_are_sealed_in_the_order_in_which_they_leave() -> None:
    seal = Seal(b"key")
    first, second = Send(1, encode_ack(1, 1, 1, 1), seal), Send(1, encode_ack(2, 2, 2, 2), seal)
    reader = SessionReader()
    reader.secure(Seal(b"key"))
    assert list(reader.feed(second.frame() + first.frame())) == [Ack(2, 2, 2, 2), Ack(1, 1, 1, 1)]


def test_without_a_key_a_frame_leaves_as_it_is() -> None:
    assert Send(1, b"frame").frame() == b"frame"
