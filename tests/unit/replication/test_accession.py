"""Who may open for writes: each case of the register, and what it must have heard."""

import msgspec

from tandemq.codec.ha_register import Member, Register
from tandemq.replication.accession import CLASSIC, Case, Heard, Judgement, is_named, judge, judge_elected

A, B, C, D = "a:1#1", "b:1#1", "c:1#1", "d:1#1"


def register(
    *members: str, holder: str = A, in_sync: tuple[str, ...] = (), epoch: int = 3, joining: str = ""
) -> Register:
    return Register(
        group_id="g",
        epoch=epoch,
        epoch_id="e",
        holder=holder,
        revision=5,
        members=tuple(Member(one) for one in members),
        joining=(Member(joining),) if joining else (),
        in_sync=in_sync or (holder,),
    )


def test_nobody_has_a_register() -> None:
    assert judge(Heard(A, None), False, [Heard(B, None)]) is None


def test_the_last_holder_must_hear_all_in_sync_and_another_member() -> None:
    three = register(A, B, C, in_sync=(A, B))
    alone = judge(Heard(A, three), True, [])
    assert alone is not None
    assert (alone.case, alone.missing, alone.was_alone) == (Case.HOLDER, {B}, False)
    assert alone.may_open_provisionally
    others = judge(Heard(A, three), True, [Heard(C, three)])
    assert others is not None
    assert others.missing == {B}, "one who was not in sync does not stand in for one who was"
    heard = judge(Heard(A, three), True, [Heard(B, three)])
    assert heard is not None
    assert heard.may_open


def test_a_holder_that_was_alone_in_sync_opens_regularly_only_with_another_member() -> None:
    pair = register(A, B, in_sync=(A,))
    alone = judge(Heard(A, pair), True, [])
    assert alone is not None
    assert (alone.may_open, alone.was_alone, alone.missing) == (False, True, {B})
    single = judge(Heard(A, register(A)), True, [])
    assert single is not None
    assert single.may_open, "a group of one"


def test_a_promotion_cut_short_needs_all_but_one_with_itself_counted() -> None:
    three = register(A, B, C)
    assert not (judge(Heard(A, three), False, []) or None).may_open  # type: ignore[union-attr]
    one = judge(Heard(A, three), False, [Heard(C, three)])
    assert one is not None
    assert (one.case, one.may_open, one.may_open_provisionally) == (Case.CUT_SHORT, True, False)
    crashed = judge(Heard(A, three, clean=False), False, [Heard(C, three)])
    assert crashed is not None
    assert not crashed.may_open


def test_a_promoted_member_hears_everybody_but_the_last_holder() -> None:
    four = register(A, B, C, joining=D)
    found = judge(Heard(B, four), False, [Heard(C, four)])
    assert found is not None
    assert (found.case, found.missing) == (Case.PROMOTED, {D})
    whole = judge(Heard(B, four), False, [Heard(C, four), Heard(D, None)])
    assert whole is not None
    assert whole.may_open
    pair = judge(Heard(B, register(A, B)), False, [])
    assert pair is not None
    assert pair.may_open, "in a pair the slave alone is enough"


def test_one_whose_machine_crashed_counts_as_silent_in_a_promotion() -> None:
    three = register(A, B, C)
    other = judge(Heard(B, three), False, [Heard(C, three, clean=False)])
    assert other is not None
    assert (other.missing, other.crashed) == ({C}, {C})
    itself = judge(Heard(B, register(A, B), clean=False), False, [])
    assert itself is not None
    assert itself.missing == {B}


def test_members_and_holder_are_those_of_the_newest_register_heard() -> None:
    old, new = register(A, B, C), register(A, B, C, holder=C, epoch=4)
    found = judge(Heard(A, old), True, [Heard(B, new)])
    assert found is not None
    assert (found.case, found.register, found.yields) == (Case.PROMOTED, new, True)
    stranger = judge(Heard(A, old), True, [Heard(D, register(A, D, holder=D, epoch=9))])
    assert stranger is not None
    assert stranger.register == old, "one that the own register does not name is not heard"


def test_the_empty_store_at_the_holders_address_hears_every_member_but_the_lost_one() -> None:
    three, again = register(A, B, C), "a:1#2"
    found = judge(Heard(again, None), False, [Heard(B, three)])
    assert found is not None
    assert (found.case, found.missing, found.replaces) == (Case.LOST_DISK, {C}, A)
    elsewhere = judge(Heard("x:1#1", None), False, [Heard(B, three), Heard(C, three)])
    assert elsewhere is not None
    assert elsewhere.case is Case.NOT_NAMED
    assert not elsewhere.may_open


def test_who_is_answered() -> None:
    pair = register(A, B)
    assert is_named(None, C, None)
    assert is_named(pair, B, pair)
    assert not is_named(pair, C, pair)
    assert is_named(pair, "a:1#2", None), "the lost holder's empty store"
    assert not is_named(pair, "a:1#2", pair)
    assert not is_named(pair, "b:1#2", None), "a lost slave's store only joins"


def test_a_new_store_that_reigns_is_answered_by_one_whose_own_promotion_was_cut_short() -> None:
    mine, again = register(A, B, C, holder=C, epoch=4), "a:1#2"
    theirs = register(again, B, C, holder=again, epoch=5)
    assert is_named(mine, again, theirs), "the newer epoch says that the store at that place was lost"
    assert not is_named(mine, again, register(again, B, C, holder=again, epoch=4)), "not one of the same epoch"
    assert not is_named(mine, again, register(A, again, B, C, holder=again, epoch=5)), "nobody was lost there"
    assert not is_named(mine, "x:1#1", register("x:1#1", B, C, holder="x:1#1", epoch=5)), "a stranger"


def test_rocketmq_slaves_whose_copies_were_counted_are_silent_unless_the_last_holder_is_heard() -> None:
    counted = msgspec.structs.replace(register(A, B, C), classic_from=100)
    promoted = judge(Heard(B, counted), True, [Heard(C, counted)])
    assert promoted is not None
    assert (promoted.case, promoted.missing) == (Case.PROMOTED, {CLASSIC})
    with_holder = judge(Heard(B, counted), True, [Heard(C, counted), Heard(A, counted)])
    assert with_holder is not None
    assert with_holder.may_open
    crashed_holder = judge(Heard(B, counted), True, [Heard(C, counted), Heard(A, counted, clean=False)])
    assert crashed_holder is not None
    assert crashed_holder.missing == {CLASSIC}
    lost_disk = judge(Heard("a:1#2", None), False, [Heard(B, counted), Heard(C, counted)])
    assert lost_disk is not None
    assert (lost_disk.case, lost_disk.missing) == (Case.LOST_DISK, {CLASSIC})
    cut_short = judge(Heard(A, counted), False, [Heard(B, counted)])
    assert cut_short is not None
    assert (cut_short.case, cut_short.missing) == (Case.CUT_SHORT, {C, CLASSIC}), "the silent one and these are two"
    elected = judge_elected(Heard(B, counted), msgspec.structs.replace(counted, in_sync=(A, B)), [])
    assert elected.missing == {CLASSIC}, "with a coordinator too"
    holder = judge(Heard(A, msgspec.structs.replace(counted, in_sync=(A, B))), True, [Heard(B, counted)])
    assert holder is not None
    assert holder.may_open, "its own log has what they were counted for"


# With a coordinator ---------------------------------------------------------------------------------------------------


def elected(
    me: str, heard: dict[str, bool], *, clean: bool = True, in_sync: tuple[str, ...] = ("a:1#1", "b:1#1", "c:1#1")
) -> Judgement:
    members = tuple(Member(name, "", number) for number, name in enumerate(("a:1#1", "b:1#1", "c:1#1", "d:1#1"), 1))
    register = Register(group_id="g", home="etcd:1", epoch=5, holder="a:1#1", members=members, in_sync=in_sync)
    others = [Heard(name, register, is_clean) for name, is_clean in heard.items()]
    return judge_elected(Heard(me, None if "new" in me else register, clean), register, others)


def test_an_in_sync_member_needs_the_other_in_sync_ones_but_not_the_holder() -> None:
    assert elected("b:1#1", {}).missing == {"c:1#1"}
    assert elected("b:1#1", {"c:1#1": True}).may_open
    assert elected("b:1#1", {"d:1#1": True}).missing == {"c:1#1"}


def test_a_crashed_machine_counts_as_silent_with_a_coordinator_too() -> None:
    judgement = elected("b:1#1", {"c:1#1": False})
    assert (judgement.missing, judgement.crashed) == ({"c:1#1"}, {"c:1#1"})
    assert elected("b:1#1", {"c:1#1": True}, clean=False).missing == {"b:1#1"}


def test_the_holder_needs_everybody_in_sync_and_is_never_provisional() -> None:
    judgement = elected("a:1#1", {"b:1#1": False})
    assert judgement.missing == {"c:1#1"}
    assert not judgement.may_open_provisionally
    assert elected("a:1#1", {}, in_sync=("a:1#1",)).may_open


def test_a_member_that_is_not_in_sync_needs_the_holder_too() -> None:
    assert elected("d:1#1", {"b:1#1": True, "c:1#1": True}).missing == {"a:1#1"}
    assert elected("d:1#1", {"a:1#1": True, "b:1#1": True, "c:1#1": True}).may_open


def test_the_empty_store_at_the_holders_address_needs_every_other_member() -> None:
    judgement = elected("a:1#new", {"b:1#1": True, "c:1#1": True})
    assert (judgement.case, judgement.missing, judgement.replaces) == (Case.LOST_DISK, {"d:1#1"}, "a:1#1")


def test_a_stranger_is_not_elected() -> None:
    judgement = elected("e:1#1", {"b:1#1": True, "c:1#1": True, "d:1#1": True})
    assert judgement.case is Case.NOT_NAMED
    assert not judgement.may_open


def test_copies_of_rocketmqs_slaves_can_not_be_heard_with_a_coordinator_either() -> None:
    members = (Member(A, "", 1), Member(B, "", 2))
    known = Register(group_id="g", home="etcd:1", epoch=5, holder=A, members=members, in_sync=(A, B), classic_from=0)
    assert judge_elected(Heard(B, known), known, []).missing == {CLASSIC}
    assert judge_elected(Heard(B, known), known, [Heard(A, known)]).may_open
