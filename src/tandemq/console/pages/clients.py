"""Who is connected: producers, and the members of a page of consumer groups, with language and version."""

import asyncio
from typing import Any

from tandemq.console.routes import Endpoint, Page
from tandemq.console.versions import version_text
from tandemq.console.visit import Visit, paged
from tandemq.errors import TandemError

GROUPS_AT_A_TIME = 200
"""Groups whose members are asked for on one page: brokers list consumers group by group."""


async def page(visit: Visit) -> dict[str, Any]:
    kind = visit.choice("kind", "consumers", "producers")
    wanted = visit.text("q").strip().lower()
    if kind == "producers":
        producers = await visit.admin.producers()
        rows = [_row(group, member) for group, members in producers.items() for member in members]
        shown = paged(visit, [r for r in rows if wanted in f"{r['group']} {r['client']} {r['address']}".lower()])
        return {
            "kind": kind,
            "wanted": wanted,
            "page": shown,
            "rows": shown.items,
            "problems": [],
            "asked": len(producers),
        }
    groups = [name for name in await visit.admin.groups() if wanted in name.lower()]
    shown = paged(visit, groups, GROUPS_AT_A_TIME)
    answers = await asyncio.gather(*(visit.admin.members(name) for name in shown.items), return_exceptions=True)
    rows, problems = [], []
    for name, answer in zip(shown.items, answers, strict=True):
        if isinstance(answer, TandemError):
            problems.append(f"{name}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            rows += [_row(name, member) for member in answer]
    return {
        "kind": kind,
        "wanted": wanted,
        "page": shown,
        "rows": rows[:500],
        "problems": problems[:3],
        "asked": len(shown.items),
    }


def _row(group: str, member: Any) -> dict[str, Any]:
    return {
        "group": group, "client": member.client_id, "address": member.address, "language": member.language,
        "version": version_text(member.version), "brokers": member.brokers, "topics": sorted(member.subscriptions),
    }  # fmt: skip


async def api(visit: Visit) -> Any:
    found = await page(visit)
    return {"clients": found["rows"], "page": found["page"].number, "pages": found["page"].pages}


PAGES = (Page("/clients", "clients.html", page, every=5.0),)
ACTS = ()
ENDPOINTS = (
    Endpoint(
        "GET", "/api/v1/clients", "Who is connected.", api, {"kind": "consumers or producers", "q": "part of a name"}
    ),
)
