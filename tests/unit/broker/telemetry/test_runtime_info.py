"""The runtime table: every key that mqadmin parses is there and is a number."""

from tandemq.broker.telemetry.runtime_info import runtime_info
from tandemq.broker.telemetry.snapshot import BrokerSnapshot
from tandemq.broker.telemetry.traffic import BrokerStats

SNAPSHOT = BrokerSnapshot(
    cluster="C", broker="b", role="ASYNC_MASTER", now=20.0, wall_ms=90_061_000, is_master=True, first_offset=10,
    appended=1000, flushed=800, dispatched=990, earliest_timestamp=5, disk_used_ratio=0.25, disk_total=3 * 2**40,
    disk_free=2**30, sends_pending=1, sends_pending_max=2, pulls_parked=3, pulls_parked_max=4,
    delay_progress={3: (7, 9)},
)  # fmt: skip


def test_tools_can_parse_it() -> None:
    """clusterList of 4.9 and 5.3 parses these as numbers; rates are three of them."""
    stats = BrokerStats(0.0, 0)
    stats.put_flow("T").add(100, 5000)
    stats.get_flow("T", "g").add(50, 2500)
    stats.pulls_found += 2
    table = runtime_info(SNAPSHOT, stats)
    for key in ("timerReadBehind", "timerOffsetBehind", "timerCongestNum", "earliestMessageTimeStamp"):
        int(table[key])
    for key in ("timerEnqueueTps", "timerDequeueTps", "commitLogDiskRatio", "consumeQueueDiskRatio"):
        float(table[key])
    for key in ("putTps", "getTransferedTps", "getTransferredTps", "getFoundTps", "getMissTps", "getTotalTps"):
        assert len([float(part) for part in table[key].split(" ")]) == 3
    assert table["putTps"].startswith("5.00 ")
    assert table["msgPutTotalTodayNow"] == "100"
    assert table["dispatchBehindBytes"] == "10"
    assert table["remainHowManyDataToFlush"] == "200 B"
    assert table["commitLogDirCapacity"] == "Total : 3.0 TiB, Free : 1.0 GiB."
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    assert table["scheduleMessageOffset_3"] == "7,9"
    assert all(isinstance(value, str) for value in table.values())
