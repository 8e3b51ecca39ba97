"""How the register of a group changes, and when a change counts."""

from tandemq.codec.ha_register import Member, Register
from tandemq.replication import register as registers
from tandemq.replication.register import RegisterKeeper, is_newer, newest

A, B, C = "a:1#1", "b:1#1", "c:1#1"


def pair() -> Register:
    register = registers.minted("g", Member(A, "a:1", 0), [Member(B, "b:1", 0)])
    return registers.of_new_epoch(register, 1, "e", Member(A, "a:1"), frozenset({B}))


def test_newer_is_by_epoch_then_by_revision() -> None:
    one = pair()
    later = registers.with_in_sync(one, {A})
    assert is_newer(later, one)
    reign = registers.of_new_epoch(one, 2, "f", Member(B), frozenset())
    many = later
    for _ in range(9):
        many = registers.with_in_sync(many, {A})
    assert is_newer(reign, many), "a higher epoch, whatever the revisions"
    assert newest([None, one, reign, many]) == reign
    assert not is_newer(None, one)


def test_a_missing_or_taken_id_becomes_the_lowest_free_one_and_stays() -> None:
    register = pair()
    assert [member.broker_id for member in register.members] == [0, 1], "who reigns from the beginning needs none"
    joined = registers.with_joining(register, Member(C, "c:1", 1))
    assert joined.find(C) == Member(C, "c:1", 2)
    assert registers.with_joined(joined, C).find(C) == Member(C, "c:1", 2)
    assert registers.of_new_epoch(register, 2, "f", Member(B), frozenset()).find(A) == Member(A, "a:1", 2)


def test_a_new_store_takes_the_lost_ones_place_in_one_swap() -> None:
    again = "b:1#2"
    joined = registers.with_joining(pair(), Member(again, "b:1"))
    replaced = registers.with_joined(joined, again)
    assert replaced.member_ids == {A, again}
    assert replaced.in_sync == (A, again)
    assert replaced.find(again) == Member(again, "b:1", 1)


def test_a_new_epoch_keeps_the_members_and_names_who_holds_everything() -> None:
    register = registers.of_new_epoch(pair(), 2, "f", Member(B, "b:1"), frozenset())
    assert (register.holder, register.in_sync, register.member_ids) == (B, (B,), {A, B})
    lost = registers.of_new_epoch(pair(), 3, "g", Member("a:1#2", "a:1"), frozenset({B}), replaces=A)
    assert lost.member_ids == {"a:1#2", B}
    assert lost.find("a:1#2") == Member("a:1#2", "a:1", 0)


def test_a_swap_compares_and_watchers_are_told() -> None:
    register = pair()
    keeper, seen = RegisterKeeper(A, register), list[Register]()
    keeper.watch(seen.append)
    new = registers.with_in_sync(register, {A})
    assert keeper.swap(register, new)
    assert not keeper.swap(register, new), "made on one that is no longer the newest"
    assert not keeper.swap(None, new)
    assert keeper.read() == new
    assert seen == [new]


def test_a_newcomer_counts_when_every_member_and_itself_have_stored_that_it_joins() -> None:
    register = pair()
    keeper = RegisterKeeper(A, None)
    keeper.begin(register)
    joining = registers.with_joining(register, Member(C))
    keeper.swap(register, joining)
    assert keeper.waits_of_joining(C) == {B, C}
    assert keeper.stored(B, 1, joining.revision)
    assert not keeper.stored(B, 1, joining.revision), "no news"
    assert not keeper.stored(C, 0, joining.revision), "of another epoch"
    assert keeper.waits_of_joining(C) == {C}
    keeper.stored(C, 1, joining.revision)
    assert not keeper.waits_of_joining(C)

    member = registers.with_joined(joining, C)
    keeper.swap(joining, member)
    assert keeper.counted_members == {A, B}
    keeper.stored(B, 1, member.revision)
    assert keeper.counted_members == {A, B}
    keeper.stored(C, 1, member.revision)
    assert keeper.counted_members == {A, B, C}


def test_one_forgotten_counts_for_the_size_until_all_who_can_be_reached_know_it() -> None:
    register = pair()
    keeper = RegisterKeeper(A, None)
    keeper.begin(registers.with_joined(registers.with_joining(register, Member(C)), C))
    whole = keeper.read()
    assert whole is not None
    keeper.swap(whole, registers.without(whole, C))
    assert keeper.size(frozenset({B})) == 3
    keeper.stored(B, 1, whole.revision + 1)
    assert keeper.size(frozenset({B})) == 2


def test_a_reign_that_begins_with_another_whole_log_forgets_the_copies_of_rocketmq_slaves() -> None:
    counted = registers.with_classic_from(pair(), 70)
    assert registers.of_new_epoch(counted, 2, "f", Member(B), frozenset()).classic_from == 70
    assert registers.of_new_epoch(counted, 2, "f", Member(B), frozenset({A})).classic_from == -1
    assert registers.of_new_epoch(counted, 2, "f", Member("a:1#2"), frozenset({B}), replaces=A).classic_from == -1
