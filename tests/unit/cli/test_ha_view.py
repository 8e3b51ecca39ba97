"""The health of groups and the layout of `tandemq ha status`, for states that a real pair seldom reaches."""

from typing import Any

import pytest

from tandemq.cli.ha_nodes import REFUSES, SILENT
from tandemq.cli.ha_view import advice, age_text, behind, judge, lines_of, not_yet, worst

SLAVE: dict[str, Any] = {
    "broker": "broker-a", "brokerId": 1, "address": "10.0.0.2:10911", "role": "slave", "brokerRole": "SLAVE",
    "phase": "following", "epoch": 1, "end": 90, "confirmed": 90, "replicas": [],
}  # fmt: skip


def replica(**changed: Any) -> dict[str, Any]:
    told = {
        "replica": "10.0.0.2:10911#abc", "address": "10.0.0.2:10911", "state": "in sync", "in_sync": True,
        "is_member": True, "protocol": "extended", "received": 90, "durable": 80, "applied": 70,
        "lag_bytes": 0, "lag_ms": 0, "rate": 0.0, "error": "", "reason": "", "advice": "", "error_age_ms": 0,
    }  # fmt: skip
    return told | changed


def master(*replicas: dict[str, Any], **changed: Any) -> dict[str, Any]:
    told = SLAVE | {
        "brokerId": 0, "address": "10.0.0.1:10911", "role": "master", "brokerRole": "SYNC_MASTER", "phase": "open",
        "writable": True, "refusal": "", "replicas": list(replicas),
    }  # fmt: skip
    return told | changed


AWAY = replica(in_sync=False, state="away", error="lost", reason="connection-lost", advice="wait", error_age_ms=125_000)


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ([master(replica()), SLAVE], 0),
        ([master()], 0),
        ([master(AWAY)], 3),
        ([master(replica(), AWAY | {"is_member": False}), SLAVE], 0),
        ([master(replica()), SLAVE | {"phase": SILENT}], 3),
        ([master(replica()), SLAVE | {"phase": "not connected"}], 3),
        ([master(replica(), writable=False, phase="disk full"), SLAVE], 4),
        ([SLAVE | {"phase": "not connected", "error": "gone"}], 4),
        ([master() | {"phase": SILENT, "role": "?"}, SLAVE], 4),
        ([master(replica()), SLAVE | {"phase": REFUSES, "role": "?"}], 1),
        ([{"broker": "b", "address": "x:1", "role": "master", "phase": "RocketMQ 4", "replicas": []}], 0),
        ([], 4),
        ([master(AWAY), master(writable=False, broker="broker-b")], 4),
    ],
)
def test_the_worst_group_decides_the_exit_code(nodes: list[dict[str, Any]], code: int) -> None:
    assert worst(judge(nodes)) == code


def test_a_slave_asked_alone_is_healthy_while_it_follows() -> None:
    assert worst(judge([SLAVE], asked_by_address=True)) == 0
    assert worst(judge([SLAVE])) == 4
    assert worst(judge([SLAVE | {"phase": "not connected", "error": "gone"}], asked_by_address=True)) == 4


def test_waiting_for_slaves_is_over_when_there_are_some_and_all_are_in_sync() -> None:
    def missing(*nodes: dict[str, Any]) -> str:
        return not_yet(judge(nodes), in_sync=True, writable=False)

    assert missing(master(replica()), SLAVE) == ""
    assert missing(master()) == "broker-a: no slave has joined"
    assert missing(master(AWAY)) == "broker-a: not in sync: 10.0.0.2:10911"
    assert missing() == "no broker is registered"
    assert not_yet(judge([master()]), in_sync=False, writable=True) == ""
    assert not_yet(judge([SLAVE]), in_sync=False, writable=True) == "broker-a: no writer"


@pytest.mark.parametrize("number", [0, 123_456_789, 9_999_999_999_999])
def test_lines_fit_80_columns_whatever_the_numbers(number: int) -> None:
    place = "255.255.255.255:65535"
    told = replica(address=place, received=number, durable=number, applied=number, lag_bytes=number, lag_ms=number)
    nodes = [
        master(told, told | {"address": "10.0.0.3:1", "protocol": "classic"}, address=place, end=number, epoch=12345),
        SLAVE | {"address": place, "end": number, "confirmed": number},
    ]
    lines = lines_of(judge(nodes), 80)
    assert max(map(len, lines)) <= 80
    assert all(str(number) in line for line in lines if place in line), "no number is wrapped or cut"


def test_only_what_is_news_takes_a_column() -> None:
    lines = lines_of(judge([master(replica()), SLAVE]), 80)
    assert lines == [
        "broker-a: healthy, 1 slave in sync",
        "ID  ADDRESS         ROLE         STATE      EPOCH  END  CONFIRMED",
        " 0  10.0.0.1:10911  SYNC_MASTER  open           1   90         90",
        " 1  10.0.0.2:10911  SLAVE        following      1   90         90",
        "",
        "SLAVE           STATE    RECEIVED  DURABLE  APPLIED  LAG  LAG MS  MB/S",
        "10.0.0.2:10911  in sync        90       80       70    0       0   0.0",
    ]
    classic = lines_of(judge([master(replica(protocol="classic"))]), 80)
    assert "PROTOCOL" in classic[-2]


def test_two_identities_of_one_address_are_told_apart() -> None:
    old = AWAY | {"replica": "10.0.0.2:10911#old", "is_member": False}
    lines = lines_of(judge([master(replica(), old)]), 80)
    assert [line.split()[0] for line in lines[-2:]] == ["10.0.0.2:10911#abc", "10.0.0.2:10911#old"]


def test_advice_says_since_when() -> None:
    told = advice([master(AWAY, error="the disk is full", reason="disk-full", refusal="the disk is full")])
    assert told == [
        "broker-a 10.0.0.1:10911: the disk is full [disk-full].",
        "broker-a 10.0.0.1:10911: slave 10.0.0.2:10911: lost [connection-lost], 2 min 5 s ago. wait",
    ]


def test_ages_have_two_units_at_most() -> None:
    assert [age_text(ms) for ms in (0, 900, 61_000, 3_600_000, 90_061_000)] == [
        "0 s",
        "0 s",
        "1 min 1 s",
        "1 h",
        "1 d 1 h",
    ]


CLASSIC = SLAVE | {
    "protocol": "classic", "master": "10.0.0.1:10912", "master_end": 1090, "lag_bytes": 1000, "lag_ms": 2000,
    "seconds_left": 65.0, "lacks": None,
}  # fmt: skip


def test_a_slave_of_rocketmq_tells_how_far_its_copy_is() -> None:
    (line,) = advice([CLASSIC])
    assert (
        "in RocketMQ's protocol: its END is 1090, ours 90, 1000 bytes and 2 s behind, 8 % done, about 1 min 5 s" in line
    )
    (line,) = advice([CLASSIC | {"lag_bytes": 0}])
    assert line.endswith("it has everything")
    (line,) = advice([CLASSIC | {"lag_bytes": 0, "end": 1200}])
    assert "its END is 1200, ours 1200, it has everything" in line, "no END below ours: it was told a while ago"
    assert "lacks [0, 50)" in advice([CLASSIC | {"lacks": [0, 50]}])[1]


def test_an_observer_that_is_asked_alone_is_called_one() -> None:
    (group,) = judge([CLASSIC | {"observer": True, "brokerRole": "SLAVE"}], asked_by_address=True)
    assert group.why == "healthy, follows"
    assert any("OBSERVER" in line for line in lines_of([group], 120))


def test_caught_up_means_that_the_master_said_so() -> None:
    assert "1000 bytes" in behind([CLASSIC])
    assert behind([CLASSIC | {"lag_bytes": 0}]) == ""
    assert "has not told" in behind([CLASSIC | {"lag_bytes": 0, "master_end": -1}])
    assert "lacks" in behind([CLASSIC | {"lag_bytes": 0, "lacks": [0, 50]}])
    assert "does not follow" in behind([CLASSIC | {"phase": "not connected", "error": "gone"}])
    assert "does not answer" in behind([{"address": "10.0.0.9:10911", "role": "?", "phase": "does not answer"}])
    assert behind([master(replica()), SLAVE]) == ""
    assert "7 bytes" in behind([master(replica(lag_bytes=7)), SLAVE])


def test_a_slave_that_is_a_rocketmq_4_tells_nothing_and_stops_nobody() -> None:
    """It answers no question about its log; those beside it still have their lines."""
    four = {"broker": "b", "brokerId": 1, "address": "10.0.0.3:10911", "role": "slave", "phase": "RocketMQ 4"}
    assert advice([four, CLASSIC])[0].endswith("left")
