"""What a page, an act and a path of the API are; `pages/` lists them and `app.py` serves them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tandemq.console.visit import Visit


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template is rendered with what `build` returns; blocks named `live_…` are sent as they change."""

    path: str
    template: str
    build: Callable[[Visit], Awaitable[dict[str, Any]]]
    every: float = 1.0
    """Seconds between two looks of the live stream; those that ask brokers for more look less often."""


@dataclass(frozen=True, slots=True)
class ActRoute:
    """A form that changes something; `do` returns where to go next."""

    path: str
    do: Callable[[Visit], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path of the API; the OpenAPI document is made from these."""

    method: str
    path: str
    summary: str
    answer: Callable[[Visit], Awaitable[Any]]
    query: dict[str, str] = field(default_factory=dict)
    """Parameter of the URL -> what it means."""
    body: dict[str, str] = field(default_factory=dict)
    """Field of the JSON body -> what it means."""
