"""Who may write: every case of reign.py, and the book of addresses."""

from pathlib import Path

import pytest

from tandemq.broker.pair.peer_book import ADDRESSES_MAX, PeerBook
from tandemq.broker.pair.reign import Own, RoleVerdict, Seen, Step, View, decide
from tandemq.sim.disk import MemoryDisk

ME, OTHER, THIRD = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"


def closed(reign: int = 1, claim: int | None = None) -> Own:
    return Own(address=ME, reign=(reign, "me"), claim=(reign if claim is None else claim, "me"))


def reigning(number: int, id: str = "me") -> Own:
    return Own(address=ME, is_open=True, reign=(number, id), claim=(number, id))


def open_master(number: int, id: str = "other", address: str = OTHER) -> Seen:
    return Seen(address=address, is_master=True, is_open=True, claim=(number, id))


def asking_master(number: int) -> Seen:
    return Seen(address=OTHER, is_master=True, claim=(number, "other"))


def slave(number: int, follows: str = "") -> Seen:
    return Seen(address=THIRD, claim=(number, "other"), follows=follows)


def silent(address: str = OTHER) -> Seen:
    return Seen(address=address, answered=False)


def step(own: Own, *seen: Seen, holder: str = "", servers: bool = True, waited: bool = False, ok: bool = False) -> Step:
    view = View(seen=seen, holder=holder, servers_answered=servers)
    return decide(own, view, waited=waited, allowed=ok).step


def test_a_lone_broker_reigns_at_once_with_and_without_a_name_server() -> None:
    assert step(closed(0)) is Step.REIGN
    assert step(closed(0), servers=False) is Step.REIGN


def test_a_node_that_handed_over_and_restarts_follows_its_successor() -> None:
    own = Own(address=ME, reign=(2, "other"), claim=(2, "other"))
    view = View(seen=[open_master(2)], holder=OTHER)
    assert decide(own, view, waited=False, allowed=False) == RoleVerdict(
        Step.FOLLOW, f"{OTHER} reigns in epoch 2, this broker's last was 2", OTHER
    )


def test_a_node_that_crashed_follows_who_was_promoted_meanwhile_even_if_it_asked_for_more_in_vain() -> None:
    assert step(closed(1), open_master(2)) is Step.FOLLOW
    assert step(closed(1, claim=7), open_master(2)) is Step.FOLLOW


@pytest.mark.parametrize("waited", [False, True])
def test_nobody_may_allow_writes_beside_an_open_master(waited: bool) -> None:
    assert step(closed(1), open_master(2), waited=waited, ok=True) is Step.FOLLOW


def test_an_outdated_open_master_does_not_keep_the_newer_one_from_its_throne() -> None:
    assert step(closed(3), open_master(2)) is Step.REIGN
    assert step(closed(3), open_master(2), open_master(4, address=THIRD)) is Step.FOLLOW


def test_slaves_tell_of_a_master_that_this_node_cannot_reach() -> None:
    assert step(closed(1), silent(), slave(2, follows=OTHER)) is Step.FOLLOW
    assert step(closed(1), silent(), slave(2)) is Step.REIGN, "it follows nobody: that reign is over"
    assert step(closed(1), slave(1, follows=ME)) is Step.REIGN
    assert step(closed(1), slave(2, follows=ME)) is Step.REIGN


def test_of_two_that_ask_the_one_with_the_newer_claim_goes_on() -> None:
    assert step(closed(1, claim=2), asking_master(3)) is Step.FOLLOW
    assert step(closed(1, claim=4), asking_master(3)) is Step.REIGN


def test_a_silent_holder_of_id_0_is_waited_for_until_it_is_forgotten_or_the_operator_says_so() -> None:
    assert step(closed(1), silent(), holder=OTHER) is Step.WAIT
    assert step(closed(1), silent(), holder=OTHER, waited=True) is Step.WAIT
    assert step(closed(1), silent(), holder=OTHER, ok=True) is Step.REIGN
    assert step(closed(1), silent()) is Step.REIGN


def test_without_name_servers_silent_members_are_waited_for_but_not_for_ever() -> None:
    assert step(closed(1), silent(), servers=False) is Step.WAIT
    assert step(closed(1), silent(), servers=False, waited=True) is Step.REIGN
    assert step(closed(1), silent(), servers=False, ok=True) is Step.REIGN
    assert step(closed(1), slave(1), servers=False) is Step.REIGN


def test_an_open_master_steps_down_for_a_newer_epoch_only() -> None:
    assert step(reigning(1), open_master(2)) is Step.FOLLOW
    assert step(reigning(1), slave(2, follows=OTHER)) is Step.FOLLOW
    assert step(reigning(1), slave(1, follows=ME), silent()) is Step.REIGN
    assert step(reigning(2), asking_master(3)) is Step.REIGN, "it does not write yet"


def test_an_open_master_tells_an_outdated_one() -> None:
    view = View(seen=[open_master(2)])
    verdict = decide(reigning(3), view, waited=True, allowed=True)
    assert (verdict.step, verdict.address) == (Step.TELL, OTHER)


def test_of_two_open_masters_of_one_number_exactly_one_gives_way() -> None:
    assert step(reigning(2, "a"), open_master(2, "b")) is Step.FOLLOW
    assert step(reigning(2, "b"), open_master(2, "a")) is Step.TELL


def test_the_book_remembers_the_newest_addresses_and_survives_damage() -> None:
    disk, path = MemoryDisk(), Path("/store/peers.json")
    disk.make_directory(path.parent)
    book = PeerBook(disk, path)
    book.note([OTHER, "", OTHER, THIRD])
    assert PeerBook(disk, path).addresses == (OTHER, THIRD)
    book.drop(OTHER)
    assert PeerBook(disk, path).addresses == (THIRD,)
    book.note(f"10.0.1.{number}:1" for number in range(40))
    assert len(PeerBook(disk, path).addresses) == ADDRESSES_MAX
    disk.replace_file(path, b"{")
    assert PeerBook(disk, path).addresses == ()


def test_with_a_register_the_higher_epoch_decides_and_of_two_with_one_number_exactly_one_yields() -> None:
    def own(replica: str, epoch: int) -> Own:
        return Own(address=replica, is_open=True, replica=replica, group_id="g", register=(epoch, 9))

    def seen(holder: str, epoch: int, group: str = "g") -> View:
        return View(seen=[Seen(address=holder, is_open=True, group_id=group, register=(epoch, 1), holder=holder)])

    assert decide(own("a", 3), seen("b", 4), waited=True, allowed=False).step is Step.FOLLOW
    assert decide(own("a", 4), seen("b", 3), waited=True, allowed=False).step is Step.TELL
    assert decide(own("a", 3), seen("a", 4), waited=True, allowed=False).step is Step.REIGN, "its own, told by another"
    assert decide(own("a", 3), seen("b", 9, group="h"), waited=True, allowed=False).step is Step.REIGN
    assert decide(own("a", 5), seen("b", 5), waited=True, allowed=False).step is Step.FOLLOW
    assert decide(own("b", 5), seen("a", 5), waited=True, allowed=False).step is Step.REIGN
