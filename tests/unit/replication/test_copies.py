"""CopyCounts: whose copies count, and how many a level needs."""

import pytest

from tandemq.model.ack_level import AckLevel
from tandemq.replication.copies import CopyCounts

FAR = 1 << 60


def counts(*replicas: tuple[str, int, int], size: int = 1) -> CopyCounts:
    copies = CopyCounts(size)
    for name, received, durable in replicas:
        copies.acked(name, received, durable, classic=False)
    return copies


def test_the_kth_largest_offset_is_what_k_replicas_have() -> None:
    copies = counts(("b", 30, 10), ("c", 20, 20), ("d", 10, 0))
    assert [copies.kth(k, durable=False) for k in (1, 2, 3, 4)] == [30, 20, 10, 0]
    assert [copies.kth(k, durable=True) for k in (1, 2, 3)] == [20, 10, 0]


def test_offsets_never_go_back_and_durable_never_passes_received() -> None:
    copies = counts(("b", 100, 150))
    assert copies.kth(1, durable=True) == 100
    assert not copies.acked("b", 90, 80, classic=False)
    assert copies.acked("b", 120, 500, classic=False)
    assert (copies.kth(1, durable=False), copies.kth(1, durable=True)) == (120, 120)


def test_a_group_is_never_smaller_than_configured_nor_than_who_is_known() -> None:
    copies = counts(("b", 0, 0), size=2)
    assert copies.group_size == 2
    copies.set_known(frozenset({"b", "c", "d"}))
    assert copies.group_size == 4
    copies.set_register_size(3)
    assert copies.group_size == 3
    assert copies.others_needed(AckLevel("majority")) == 1
    assert copies.others_needed(AckLevel("all")) == 2


def test_rocketmq_slaves_count_only_beyond_the_members_of_the_register() -> None:
    copies = counts(("b", 10, 10))
    copies.set_register_size(2)
    copies.acked("classic@c", 50, 0, classic=True)
    assert copies.has_classic
    assert copies.kth(1, durable=False) == 10
    assert copies.kth(2, durable=False) == 10, "for a third copy the RocketMQ slave counts too"
    assert len(copies.counted(1)) == 1


def test_who_is_dropped_counts_no_more() -> None:
    copies = counts(("b", 10, 10), ("c", 5, 5))
    assert copies.drop("b")
    assert not copies.drop("b")
    assert copies.kth(1, durable=False) == 5
    copies.clear()
    assert copies.counted(1) == []


@pytest.mark.parametrize(
    ("others", "end", "why"),
    [
        (0, 1000, ""),
        (1, 59, ""),
        (1, 60, "fell behind by 50 bytes"),
        (2, 20, "the group has 2 nodes"),
    ],
)
def test_why_copies_can_not_be_had(others: int, end: int, why: str) -> None:
    copies = counts(("b", 10, 10))
    found = copies.missing(end, others, 50, "gone")
    assert why in found if why else found == ""


def test_without_any_replica_the_reason_is_why_it_is_absent() -> None:
    assert CopyCounts().missing(10, 1, FAR, "slave b: disk full").endswith("1 can be had: slave b: disk full")
