"""GET_BROKER_RUNTIME_INFO: the table of texts that mqadmin's clusterList and brokerStatus print.

Keys are upstream's (StoreStatsService, DefaultMessageStore, AdminBrokerProcessor); one its tools parse as a number must
be one. Keys about thread pools are there with what takes their place here: pending acknowledgements and parked pulls.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tandemq.broker.stats import BrokerStats

VERSION = 407
VERSION_TEXT = "V4_9_7"
"""The release whose behaviour 4.x tools expect; they only print it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFacts:
    """What the rest of the broker knows at this moment."""

    now: float
    wall_ms: int
    is_active: bool
    """Delay and transaction services run: it is a master"""
    first_offset: int
    appended: int
    flushed: int
    dispatched: int
    earliest_timestamp: int
    """Store time of the oldest message of the log"""
    disk_used_ratio: float
    disk_total: int
    disk_free: int
    sends_pending: int
    sends_pending_max: int
    pulls_parked: int
    pulls_parked_max: int
    start_accept_ms: int = 0
    delay_progress: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """level -> (delivered offset, end of the queue)"""
    timer_waiting: int = 0


def runtime_info(stats: BrokerStats, facts: RuntimeFacts) -> dict[str, str]:
    put, got = stats.put_totals(facts.now), stats.get_totals(facts.now)
    yesterday, morning, today = stats.mornings()
    found, missed = stats.pull_tps(facts.now, found=True), stats.pull_tps(facts.now, found=False)
    total = tuple(a + b for a, b in zip(found, missed, strict=True))
    table = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
        "bootTimestamp": str(stats.started_ms),
        "brokerActive": "true" if facts.is_active else "false",
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": VERSION_TEXT,
        "tandemqIdempotentSends": "true",
        "commitLogDirCapacity": f"Total : {_size(facts.disk_total)}, Free : {_size(facts.disk_free)}.",
        "commitLogDiskRatio": f"{facts.disk_used_ratio:.4f}",
        "commitLogMaxOffset": str(facts.appended),
        "commitLogMinOffset": str(facts.first_offset),
        "consumeQueueDiskRatio": f"{facts.disk_used_ratio:.4f}",
        "dispatchBehindBytes": str(max(0, facts.appended - facts.dispatched)),
        "dispatchMaxBuffer": "0",
        "earliestMessageTimeStamp": str(facts.earliest_timestamp),
        "getFoundTps": _tps(found),
        "getMessageEntireTimeMax": "0",
        "getMissTps": _tps(missed),
        "getTotalTps": _tps(total),
        "getTransferedTps": _tps(got.tps),  # 4.x tools read this spelling, 5.x the next
        "getTransferredTps": _tps(got.tps),
        "msgGetTotalTodayMorning": str(morning[1]),
        "msgGetTotalTodayNow": str(today[1]),
        "msgGetTotalYesterdayMorning": str(yesterday[1]),
        "msgPutTotalTodayMorning": str(morning[0]),
        "msgPutTotalTodayNow": str(today[0]),
        "msgPutTotalYesterdayMorning": str(yesterday[0]),
        "pageCacheLockTimeMills": "0",
        "pullThreadPoolQueueCapacity": str(facts.pulls_parked_max),
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": str(facts.pulls_parked),
        "putMessageAverageSize": f"{put.bytes / put.messages if put.messages else 0.0:.1f}",
        "putMessageEntireTimeMax": "0",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": str(put.bytes),
        "putMessageTimesTotal": str(put.messages),
        "putTps": _tps(put.tps),
        "queryThreadPoolQueueCapacity": "20000",
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueSize": "0",
        "remainHowManyDataToFlush": _size(max(0, facts.appended - facts.flushed)),
        "remainTransientStoreBufferNumbs": "2147483647",
        "runtime": _duration(facts.wall_ms - stats.started_ms),
        "sendThreadPoolQueueCapacity": str(facts.sends_pending_max),
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "sendThreadPoolQueueSize": str(facts.sends_pending),
        "startAcceptSendRequestTimeStamp": str(facts.start_accept_ms),
        "timerCongestNum": str(facts.timer_waiting),
        "timerDequeueTps": "0.0",
        "timerEnqueueTps": "0.0",
        "timerOffsetBehind": "0",
        "timerReadBehind": "0",
    }
    for pool in ("ack", "litePull"):  # 5.x tools print these
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueCapacity"] = "100000"
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    for level, (delivered, end) in facts.delay_progress.items():
        table[f"scheduleMessageOffset_{level}"] = f"{delivered},{end}"
    return dict(sorted(table.items()))


def _tps(rates: tuple[float, ...]) -> str:
    """Over 10 s, 1 min, 10 min, as upstream writes them."""
    return " ".join(f"{rate:.2f}" for rate in rates)


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{int(value)} B" if unit == "B" else f"{value:.1f} {unit}"


def _duration(milliseconds: int) -> str:
    seconds = max(0, milliseconds) // 1000
    days, seconds = divmod(seconds, 86_400)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
