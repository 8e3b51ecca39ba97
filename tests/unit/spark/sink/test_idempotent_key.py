"""Keys are deterministic; the claim of a send is what the broker reads."""

from tandemq.broker.idempotence import Claim, parse_claim
from tandemq.spark.sink.idempotent_key import claim, producer_id, sequence, writer_id


def test_identities_are_deterministic_and_sequences_rise() -> None:
    """The same place gives the same producer; a later micro-batch a higher sequence."""
    assert producer_id("q", 1, "t", "b", 0) == producer_id("q", 1, "t", "b", 0)
    assert producer_id("q", 1, "t", "b", 0) != producer_id("q", 1, "t", "b", 1)
    assert writer_id("q", 1) != writer_id("q", 2)
    assert sequence(1, 0) > sequence(0, 2**32 - 1)


def test_a_claim_is_what_the_broker_reads() -> None:
    """Both sides are written by us, in different rooms."""
    text = claim("a" * 20, 6, 7, 9, 2, 5).removeprefix("__TQ_IDEMPOTENT\x01").removesuffix("\x02")
    assert parse_claim(text) == Claim("a" * 20, 6, 7, 9, 2, 5)
    text = claim("a" * 20, None, 0, 0, 1, keeps=True).removeprefix("__TQ_IDEMPOTENT\x01").removesuffix("\x02")
    assert parse_claim(text) == Claim("a" * 20, None, 0, 0, 1, keeps=True)
