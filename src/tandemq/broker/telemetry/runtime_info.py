"""Renders a broker for GET_BROKER_RUNTIME_INFO: the table of texts that mqadmin's clusterList and brokerStatus print.

Keys are upstream's (StoreStatsService, DefaultMessageStore, AdminBrokerProcessor); what its tools parse as a number is
one. Keys about thread pools show what takes their place here: pending acknowledgements and parked pulls.
"""

from tandemq import __version__
from tandemq.broker.telemetry.snapshot import BrokerSnapshot
from tandemq.broker.telemetry.traffic import BrokerStats

VERSION = 407
VERSION_TEXT = "V4_9_7"
"""The release whose behaviour 4.x tools expect; they only print it."""


def runtime_info(snapshot: BrokerSnapshot, stats: BrokerStats) -> dict[str, str]:
    """Returns the table, sorted by key."""
    put, got = stats.put_totals(snapshot.now), stats.get_totals(snapshot.now)
    yesterday, morning, today = stats.mornings()
    found, missed = stats.pull_tps(snapshot.now, found=True), stats.pull_tps(snapshot.now, found=False)
    total = tuple(a + b for a, b in zip(found, missed, strict=True))
    table = {
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": "100000",
        "bootTimestamp": str(stats.started_ms),
        "brokerActive": "true" if snapshot.is_master else "false",
        "brokerVersion": str(VERSION),
        "brokerVersionDesc": VERSION_TEXT,
        "tandemqIdempotentSends": "true",
        "tandemqVersion": __version__,
        "commitLogDirCapacity": f"Total : {_size(snapshot.disk_total)}, Free : {_size(snapshot.disk_free)}.",
        "commitLogDiskRatio": f"{snapshot.disk_used_ratio:.4f}",
        "commitLogMaxOffset": str(snapshot.appended),
        "commitLogMinOffset": str(snapshot.first_offset),
        "consumeQueueDiskRatio": f"{snapshot.disk_used_ratio:.4f}",
        "dispatchBehindBytes": str(max(0, snapshot.appended - snapshot.dispatched)),
        "dispatchMaxBuffer": "0",
        "earliestMessageTimeStamp": str(snapshot.earliest_timestamp),
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
        "pullThreadPoolQueueCapacity": str(snapshot.pulls_parked_max),
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueSize": str(snapshot.pulls_parked),
        "putMessageAverageSize": f"{put.bytes / put.messages if put.messages else 0.0:.1f}",
        "putMessageEntireTimeMax": "0",
        "putMessageFailedTimes": "0",
        "putMessageSizeTotal": str(put.bytes),
        "putMessageTimesTotal": str(put.messages),
        "putTps": _tps(put.tps),
        "queryThreadPoolQueueCapacity": "20000",
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueSize": "0",
        "remainHowManyDataToFlush": _size(max(0, snapshot.appended - snapshot.flushed)),
        "remainTransientStoreBufferNumbs": "2147483647",
        "runtime": _duration(snapshot.wall_ms - stats.started_ms),
        "sendThreadPoolQueueCapacity": str(snapshot.sends_pending_max),
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "sendThreadPoolQueueSize": str(snapshot.sends_pending),
        "startAcceptSendRequestTimeStamp": str(snapshot.start_accept_ms),
        "timerCongestNum": str(snapshot.timer_messages),
        "timerDequeueTps": "0.0",
        "timerEnqueueTps": "0.0",
        "timerOffsetBehind": "0",
        "timerReadBehind": "0",
    }
    for pool in ("ack", "litePull"):  # 5.x tools print these
        table[f"{pool}ThreadPoolQueueSize"] = "0"
        table[f"{pool}ThreadPoolQueueCapacity"] = "100000"
        table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
    for level, (delivered, end) in snapshot.delay_progress.items():
        table[f"scheduleMessageOffset_{level}"] = f"{delivered},{end}"
    return dict(sorted(table.items()))


def _tps(rates: tuple[float, ...]) -> str:
    """Returns rates over 10 s, 1 min and 10 min, as upstream writes them."""
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
