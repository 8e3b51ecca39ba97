"""What every act has in common: the journal gets a line whatever happens, and what destroys wants the name typed."""

from collections.abc import Iterator
from contextlib import contextmanager

from tandemq.console.journal import Act
from tandemq.console.visit import Visit
from tandemq.errors import ClientError, TandemError


@contextmanager
def acting(visit: Visit, what: str, target: str) -> Iterator[Act]:
    """Opens a line of the journal; a failure is written into it and goes on."""
    request = visit.request
    source = request.client.host if request.client is not None else ""
    act = visit.console.journal.open(visit.now_ms, visit.who, source, what, target[:255])
    try:
        yield act
    except TandemError as error:
        act.ok, act.outcome = False, str(error)
        raise
    act.outcome = act.outcome or "done"


def typed(visit: Visit, name: str) -> None:
    """Raises ClientError unless the name was typed as it is: the page asks for it, and the server checks again."""
    given = visit.field("name")
    if not name or given != name:
        raise ClientError(f"{given[:80]!r} was typed, {name[:80]!r} is what would be changed: nothing was done")
