"""What the broker adds to a message's properties on its way into the log, done on the text without parsing it.

Upstream (SendMessageProcessor) parses, sets CLUSTER, MSG_REGION, TRACE_ON, makes a UNIQ_KEY where the producer gave
none, and writes the map again. Nearly every message carries none of the first three, so appending them gives the same
map; `plain_key` finds the few that need the long way, also those whose text mentions a name inside another one.
"""

from tandemq.model.message import (
    CLUSTER,
    DELAY,
    KEYS,
    MSG_REGION,
    REPLY_TO_CLIENT,
    TAGS,
    TRACE_ON,
    TRANSACTION_PREPARED_FLAG,
    UNIQUE_KEY,
    WAIT,
)

POP_CK = "POP_CK"
_UNIQUE = UNIQUE_KEY + "\x01"
_UNIQUE_SIZE = len(_UNIQUE)
_WAIT = WAIT + "\x01"
_TAGS = TAGS + "\x01"
_KEYS = KEYS + "\x01"
_DELAY = DELAY + "\x01"
_TRANSACTION = TRANSACTION_PREPARED_FLAG + "\x01"
_CLUSTER = CLUSTER + "\x01"
_REGION = MSG_REGION + "\x01"
_TRACE = TRACE_ON + "\x01"
_REPLY = REPLY_TO_CLIENT + "\x01"
_POP = POP_CK + "\x01"
_OURS = "__TQ_"
"""Ours all begin so: copies, idempotent sends."""


def plain_key(text: str) -> str | None:
    """Returns the value of UNIQ_KEY, "" when there is none; None when the text asks for more than appending ours."""
    start = text.find(_UNIQUE)
    names = text.count("\x01") - (start >= 0) - (_WAIT in text)
    # What nearly every message has, and nothing else, is plain: no special name ends like one of these.
    if names and names != (_TAGS in text) + (_KEYS in text) and _is_special(text):
        return None
    if start < 0:
        return ""
    if start and text[start - 1] != "\x02":
        return None
    start += _UNIQUE_SIZE
    stop = text.find("\x02", start)
    return text[start:] if stop < 0 else text[start:stop]


def _is_special(text: str) -> bool:
    return (
        _DELAY in text
        or _TRANSACTION in text
        or _CLUSTER in text
        or "TIMER_DEL" in text
        or _OURS in text
        or _REGION in text
        or _TRACE in text
        or _POP in text
        or _REPLY in text
    )


def broker_suffix(cluster: str, region: str, trace_on: bool) -> str:
    """Returns the entries that a broker adds to every message."""
    trace = "true" if trace_on else "false"
    return f"{_CLUSTER}{cluster}\x02{_REGION}{region}\x02{_TRACE}{trace}\x02"
