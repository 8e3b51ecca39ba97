"""The lease of a reign in time: what renewals, words and looks at the clock mean."""

from tandemq.replication.fence import Fence
from tandemq.replication.lease import Lapsed, Lease, Resumed


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reigning() -> tuple[Time, Lease]:
    time = Time()
    lease = Lease(Fence(time), 2.0)
    lease.granted(7)
    lease.renewed(time.now)
    return time, lease


def test_the_guard_ends_the_writes_once_and_lets_them_go_on_once() -> None:
    time, lease = reigning()
    assert lease.guard(reigns=True, is_away=False) is None
    time.now += 1.81
    assert isinstance(lease.guard(reigns=True, is_away=False), Lapsed)
    assert lease.guard(reigns=True, is_away=False) is None
    lease.renewed(time.now)
    assert isinstance(lease.guard(reigns=True, is_away=False), Resumed)
    assert lease.guard(reigns=True, is_away=False) is None


def test_the_guard_says_why() -> None:
    time, lease = reigning()
    time.now += 5.0
    lapsed = lease.guard(reigns=True, is_away=True)
    assert isinstance(lapsed, Lapsed)
    assert "etcd does not answer" in lapsed.why
    assert "read-only" in lapsed.why


def test_one_for_whom_nobody_vouches_any_more_does_not_say_that_somebody_does() -> None:
    time, lease = reigning()
    assert lease.vouched(time.now + 3.0)
    time.now += 3.1
    assert isinstance(lease.guard(reigns=True, is_away=True), Lapsed)
    assert not lease.is_vouched


def test_one_that_does_not_reign_has_nothing_to_lose() -> None:
    time, lease = reigning()
    time.now += 5.0
    assert lease.guard(reigns=False, is_away=False) is None


def test_the_word_of_the_members_is_wanted_before_the_lease_runs_out_and_only_without_etcd() -> None:
    time, lease = reigning()
    assert not lease.wants_word(is_away=True)
    time.now += 0.5
    assert lease.wants_word(is_away=True)
    assert not lease.wants_word(is_away=False)


def test_a_word_lengthens_the_reign_and_never_shortens_it() -> None:
    time, lease = reigning()
    assert not lease.vouched(time.now + 1.0)
    assert lease.vouched(time.now + 3.0)
    assert not lease.vouched(time.now + 4.0)  # it goes on by it already
    assert lease.fence.until == time.now + 4.0
    lease.renewed(time.now)
    assert not lease.is_vouched


def test_until_another_ones_lease_has_surely_ended_one_copy_is_not_enough() -> None:
    time, lease = reigning()
    assert lease.opens_over(9, was_here=False, was_handed=False)
    assert lease.fence.wants_copies
    lease.revoked(time.now)
    time.now += 1.99
    assert lease.fence.wants_copies
    time.now += 0.3
    assert not lease.fence.wants_copies


def test_nobody_waits_for_a_lease_that_is_its_own_or_was_handed_over_or_is_none() -> None:
    _, lease = reigning()
    assert not lease.opens_over(0, was_here=False, was_handed=False)
    assert not lease.opens_over(7, was_here=False, was_handed=False)
    assert not lease.opens_over(9, was_here=True, was_handed=False)
    assert not lease.opens_over(9, was_here=False, was_handed=True)
    assert not lease.fence.wants_copies


def test_an_ended_lease_closes_the_fence_and_is_told_for_its_revocation() -> None:
    _, lease = reigning()
    assert lease.ended() == 7
    assert lease.fence.is_closed
    assert lease.ended() == 0
