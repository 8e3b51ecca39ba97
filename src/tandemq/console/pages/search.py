"""The box at the top: a topic, a group, a message id or a key."""

import re
from typing import Any

from tandemq.console.routes import Page
from tandemq.console.visit import Visit, segment

FOUND_MAX = 20
_ID = re.compile(r"[0-9A-Fa-f]{32}(?:[0-9A-Fa-f]{24})?\Z")


async def page(visit: Visit) -> dict[str, Any]:
    wanted = visit.text("q").strip()
    topics = [name for name in await visit.admin.topics() if wanted and wanted.lower() in name.lower()]
    groups = [name for name in await visit.admin.groups() if wanted and wanted.lower() in name.lower()]
    target = ""
    if wanted in topics and wanted not in groups:
        target = f"/topics/{segment(wanted)}"
    elif wanted in groups and wanted not in topics:
        target = f"/groups/{segment(wanted)}"
    return {
        "wanted": wanted, "topics": topics[:FOUND_MAX], "topic_count": len(topics), "groups": groups[:FOUND_MAX],
        "group_count": len(groups), "is_id": bool(_ID.match(wanted)), "exact": target,
    }  # fmt: skip


PAGES = (Page("/search", "search.html", page, every=30.0),)
ACTS = ()
ENDPOINTS = ()
