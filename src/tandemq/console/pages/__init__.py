"""The pages, one file each: what a page shows, the acts that belong to it, and the same for programs."""

from tandemq.console.pages import (
    audit,
    clients,
    cluster,
    dead_letters,
    groups,
    messages,
    replication,
    search,
    topics,
    waiting,
)
from tandemq.console.routes import ActRoute, Endpoint, Page

_OF = (replication, topics, messages, groups, dead_letters, waiting, clients, audit, search)

PAGES: tuple[Page, ...] = (*cluster.PAGES, *(page for room in _OF for page in room.PAGES))
ACTS: tuple[ActRoute, ...] = (*cluster.ACTS, *(act for room in _OF for act in room.ACTS))
ENDPOINTS: tuple[Endpoint, ...] = tuple(endpoint for room in _OF for endpoint in room.ENDPOINTS)
