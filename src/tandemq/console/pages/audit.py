"""Every act with who, what, before, after: those of this console, and those that brokers remember."""

import asyncio
from typing import Any

from tandemq.console.routes import Endpoint, Page
from tandemq.console.visit import Visit, paged
from tandemq.errors import TandemError


async def page(visit: Visit) -> dict[str, Any]:
    lines: list[dict[str, Any]] = [
        {
            "at_ms": act.at_ms, "who": act.who, "source": act.source, "what": act.what, "target": act.target,
            "before": act.before, "after": act.after, "outcome": act.outcome, "ok": act.ok, "told_by": "this console",
        }
        for act in visit.console.journal.newest()
    ]  # fmt: skip
    ours = [r.address for r in visit.snapshot.reports if r.answers and r.kind == "TandemQ"]
    others = sorted({r.kind for r in visit.snapshot.reports if r.kind.startswith("RocketMQ")})
    answers = await asyncio.gather(*(visit.admin.audit(address) for address in ours), return_exceptions=True)
    problems = []
    for address, answer in zip(ours, answers, strict=True):
        if isinstance(answer, TandemError):
            problems.append(f"{address}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            lines += [_line(address, item) for item in answer]
    wanted = visit.text("q").strip().lower()
    lines = [line for line in lines if wanted in " ".join(str(value) for value in line.values()).lower()]
    lines.sort(key=lambda line: -line["at_ms"])
    return {"page": paged(visit, lines), "wanted": wanted, "others": others, "problems": problems}


def _line(address: str, item: dict[str, Any]) -> dict[str, Any]:
    return {
        "at_ms": int(item.get("atMs") or 0), "who": str(item.get("who") or "nobody named"),
        "source": str(item.get("from") or ""), "what": str(item.get("what") or ""),
        "target": str(item.get("fields") or ""), "before": "", "after": "", "outcome": str(item.get("outcome") or ""),
        "ok": bool(item.get("ok")), "told_by": address,
    }  # fmt: skip


async def api(visit: Visit) -> Any:
    found = (await page(visit))["page"]
    return {"acts": found.items, "page": found.number, "pages": found.pages}


PAGES = (Page("/audit", "audit.html", page, every=3.0),)
ACTS = ()
ENDPOINTS = (Endpoint("GET", "/api/v1/audit", "Acts, newest first.", api, {"q": "part of a line", "page": "from 1"}),)
