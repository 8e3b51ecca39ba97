"""Histories: two logs agree up to the last epoch equal in number and id, bounded by the shorter end within it."""

from pathlib import Path

import pytest

from tandemq.errors import CorruptLog
from tandemq.replication import replica_file
from tandemq.replication.epochs import Epoch, History, Promise, ReplicaRecord, common_point, must_ask, place_of, rank
from tandemq.sim.disk import MemoryDisk


def history(*epochs: tuple[int, str, int]) -> History:
    return History(tuple(Epoch(*epoch) for epoch in epochs))


A1, A2, B2, B3 = (1, "a", 0), (2, "a", 100), (2, "b", 80), (3, "b", 150)


@pytest.mark.parametrize(
    ("mine", "my_end", "theirs", "their_end", "agreed"),
    [
        (history(A1), 50, history(A1), 70, 50),
        (history(A1, A2), 130, history(A1, A2), 120, 120),
        (history(A1, A2), 130, history(A1, B2), 200, 80),
        (history(A1, A2), 130, history(A1), 90, 90),
        (history(A1, A2, B3), 170, history(A1, A2), 200, 150),
        (history(A1), 50, history((1, "x", 0)), 50, None),
        (history(), 50, history(A1), 50, None),
        (history(A1, (2, "a", 100)), 60, history(A1, B2), 200, 60),
    ],
)
def test_the_common_point(mine: History, my_end: int, theirs: History, their_end: int, agreed: int | None) -> None:
    assert common_point(mine, my_end, theirs, their_end) == agreed
    assert common_point(theirs, their_end, mine, my_end) == agreed


def test_a_new_reign_drops_epochs_that_never_got_a_byte() -> None:
    assert history(A1, A2).opened(5, "c", 100).epochs == (Epoch(*A1), Epoch(5, "c", 100))


def test_every_byte_has_an_epoch_and_a_run() -> None:
    found = history(A1, A2)
    assert [found.number_at(offset) for offset in (0, 99, 100)] == [1, 1, 2]
    assert [found.stop_of(offset, 150) for offset in (0, 99, 100)] == [100, 100, 150]


def test_a_promise_allows_the_same_epoch_or_a_higher_number_and_never_another_of_its_own_number() -> None:
    promise = Promise(3, "b")
    assert promise.allows(3, "b")
    assert promise.allows(4, "a")
    assert not promise.allows(3, "c"), "the one refused asks again with a higher number"
    assert not promise.allows(3, "a")
    assert not promise.allows(2, "b")


def test_a_campaign_that_never_opened_is_withdrawn_and_its_number_not_used_again() -> None:
    before = ReplicaRecord("a#1", promise=Promise(1, "x"))
    assert before.withdrawn() == before
    campaigning = before.with_(promise=Promise(2, "me"), before=Promise(1, "x"), campaigned=2)
    withdrawn = campaigning.withdrawn()
    assert withdrawn.promise == Promise(1, "x")
    assert withdrawn.promise.allows(2, "another")
    assert (withdrawn.before, withdrawn.campaigned) == (None, 2)


def test_two_identities_of_one_place_are_one_node() -> None:
    assert place_of("10.0.0.1:10911#ab") == place_of("10.0.0.1:10911#cd")


ROOT = Path("/store")


def test_the_record_survives_and_a_damaged_one_is_refused() -> None:
    disk = MemoryDisk()
    disk.make_directory(ROOT)
    assert replica_file.load(disk, ROOT) is None
    record = ReplicaRecord(
        "r#1",
        history=history(A1, A2),
        promise=Promise(4, "x"),
        members=frozenset({"s#2"}),
        in_sync=frozenset({"s#2"}),
        confirmed=77,
        reigning=True,
        follows="m#3",
        complete=False,
        blind_from=40,
        alone_from=60,
        before=Promise(3, "y"),
        campaigned=4,
    )
    replica_file.save(disk, ROOT, record)
    assert replica_file.load(disk, ROOT) == record
    path = ROOT / replica_file.FILE_NAME
    disk.files[path].data[20] ^= 1
    with pytest.raises(CorruptLog, match="is damaged"):
        replica_file.load(disk, ROOT)


def test_a_reign_nobody_joined_binds_nobody() -> None:
    record = ReplicaRecord("r#1", history(A1, A2, B3), Promise(3, "b"), before=Promise(2, "b"))
    assert record.last_reign == Epoch(*B3)
    assert record.with_(alone_from=150).last_reign == Epoch(*A2)
    assert record.with_(alone_from=150).withdrawn().promise == Promise(2, "b")


def test_a_slave_whose_machine_crashed_asks_the_master_it_followed() -> None:
    slave = ReplicaRecord("s#2", history(A1), in_sync=frozenset({"s#2", "s#3"}), follows="m#1")
    assert must_ask(slave, 100) == {"s#2", "s#3"}
    assert must_ask(slave.after_machine_crash(), 100) == {"s#2", "s#3", "m#1"}
    master = ReplicaRecord("m#1", history(A1), in_sync=frozenset({"s#2"}), reigning=True)
    assert must_ask(master.after_machine_crash(), 100) == {"s#2"}


def test_a_log_ranks_by_the_newest_epoch_it_has_reached_under_its_master_then_by_its_end() -> None:
    old, new = Epoch(1, "a", 0), Epoch(5, "b", 500)
    reached = rank(History((old, new)), 500)
    assert reached > rank(History((old,)), 900), "it has reached epoch 5, though it has no byte of it yet"
    assert rank(History((old, new)), 499) < rank(History((old,)), 900), "it has only heard of epoch 5"
    assert rank(History((old, new)), 700) > reached
    provisional = Epoch(9, "~c", 600)
    assert rank(History((old, new, provisional)), 900) < rank(History((old, new)), 700), (
        "bytes written alone rank below"
    )
    assert rank(History((old, new)), 900, alone_from=500) < rank(History((old, new)), 700)
