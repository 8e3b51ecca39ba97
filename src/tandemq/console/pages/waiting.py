"""What waits to be delivered: delayed messages by level, timers, half messages of transactions."""

from typing import Any

from tandemq.console.browse import Browser
from tandemq.console.pages.messages import row
from tandemq.console.routes import Endpoint, Page
from tandemq.console.visit import Visit
from tandemq.errors import NoRoute, TandemError
from tandemq.model.topic import SCHEDULE_TOPIC, TRANS_GROUP, TRANS_HALF_TOPIC

LEVELS = ("1s", "5s", "10s", "30s", *(f"{minutes}m" for minutes in range(1, 11)), "20m", "30m", "1h", "2h")
"""RocketMQ's messageDelayLevel; brokers may have their own, which they don't tell with their progress."""
OFFSETS = "scheduleMessageOffset_"


async def page(visit: Visit) -> dict[str, Any]:
    delays = _delays(visit)
    timers = _timers(visit)
    halves, problem = await _halves(visit)
    picked, trouble = visit.text("level"), ""
    rows: list[dict[str, Any]] = []
    if picked.isdecimal() and delays.get(int(picked)):
        rows, trouble = await _next(visit, int(picked), delays[int(picked)])
    return {
        "delays": [
            {"level": level, "name": _level_name(level), "waiting": sum(waiting for _, waiting, _ in found)}
            for level, found in sorted(delays.items())
        ],
        "delayed": sum(waiting for found in delays.values() for _, waiting, _ in found), "timers": timers,
        "halves": halves, "half_problem": problem, "picked": picked, "rows": rows, "trouble": trouble,
    }  # fmt: skip


def _level_name(level: int) -> str:
    return LEVELS[level - 1] if 1 <= level <= len(LEVELS) else f"level {level}"


def _masters(visit: Visit) -> list[Any]:
    return [
        r for r in visit.snapshot.reports if r.answers and r.facts and (r.detail.get("role") or "master") == "master"
    ]


def _delays(visit: Visit) -> dict[int, list[tuple[str, int, int]]]:
    """Returns level -> (broker, how many wait, offset of the next), as the masters' run-time info says."""
    found: dict[int, list[tuple[str, int, int]]] = {}
    for report in _masters(visit):
        for name, value in report.facts.items():
            level = name.removeprefix(OFFSETS)
            first, _, end = value.partition(",")
            if name.startswith(OFFSETS) and level.isdecimal() and first.strip().isdecimal() and end.strip().isdecimal():
                waiting = max(0, int(end) - int(first))
                found.setdefault(int(level), []).append((report.group, waiting, int(first)))
    return found


def _timers(visit: Visit) -> int | None:
    """Returns how many timer messages wait; None where no broker tells."""
    told = [r.facts["timerCongestNum"] for r in _masters(visit) if r.facts.get("timerCongestNum", "").isdecimal()]
    return sum(map(int, told)) if told else None


async def _halves(visit: Visit) -> tuple[int | None, str]:
    """Returns how many half messages nobody settled yet, by the offset of the checking group."""
    try:
        progress = await visit.admin.progress(TRANS_GROUP, TRANS_HALF_TOPIC)
    except NoRoute:
        return 0, ""
    except TandemError as error:
        return None, str(error)
    return progress.lag, ""


async def _next(visit: Visit, level: int, places: list[tuple[str, int, int]]) -> tuple[list[dict[str, Any]], str]:
    """Returns the messages of a level that are delivered next."""
    browser = Browser(visit.admin, visit.console.clock)
    rows: list[dict[str, Any]] = []
    for broker, waiting, first in places:
        if not waiting:
            continue
        try:
            found = await browser.at(SCHEDULE_TOPIC, f"{broker}/{level - 1}", first)
        except TandemError as error:
            return rows, f"{broker} does not show them: {error}"
        for message in found.messages:
            rows.append({**row(message), "target": message.properties.get("REAL_TOPIC", "")})
    return rows[:50], ""


async def api(visit: Visit) -> Any:
    return await page(visit)


PAGES = (Page("/waiting", "waiting.html", page, every=2.0),)
ACTS = ()
ENDPOINTS = (Endpoint("GET", "/api/v1/waiting", "Delays by level, timers, half messages.", api, {"level": "list it"}),)
