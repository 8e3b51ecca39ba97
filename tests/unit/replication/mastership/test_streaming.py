"""Which bytes go to whom, in which frame."""

from tests.unit.replication.masters import Master, Peer

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_classic import Head
from tandemq.replication.decisions import Batch
from tandemq.replication.mastership.streaming import DIGESTS_MAX


def streaming() -> Master:
    master = Master()
    master.hear(Peer(end=300, durable=300))
    master.registered(1)
    master.start_session(1, 300)
    return master


def test_a_batch_never_crosses_the_beginning_of_an_epoch() -> None:
    master = streaming()
    stream = master.state.streaming
    assert stream.next_batch(1, 0.0) == Batch(300, 100), "epoch 3 begins at 400"
    stream.sent(1, 400, 0.0)
    assert stream.next_batch(1, 0.0) == Batch(400, 600)
    stream.sent(1, 1000, 0.0)
    assert stream.next_batch(1, 0.0) is None


def test_a_frame_says_its_epoch_its_place_and_what_is_confirmed() -> None:
    master = streaming()
    header = master.state.streaming.frame_header(1, bytes(100))
    head = next(one for one in ha.SessionReader().feed(header) if isinstance(one, Head))
    assert (head.epoch, head.offset, head.size, head.confirmed) == (1, 300, 100, master.state.confirmed)


def test_one_that_has_every_byte_is_told_what_is_confirmed_since_and_only_once() -> None:
    master = streaming()
    stream = master.state.streaming
    master.acked(1, 1000)
    master.act(master.state.appended(1100))
    stream.frame_header(1, bytes(100))
    master.acked(1, 1100)
    assert master.state.confirmed == 1100
    assert stream.owes_news
    master.act(master.state.news(0.0))
    assert not stream.owes_news
    assert master.state.news(0.0) == []


def test_sums_of_log_bytes_are_kept_for_a_few_places_only() -> None:
    stream = streaming().state.streaming
    for place in range(DIGESTS_MAX + 5):
        stream.put_digest((4, place, 1), b"")
    assert len(stream.digests) == DIGESTS_MAX
    assert (4, 0, 1) not in stream.digests
