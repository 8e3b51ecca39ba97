"""What a subscription lets through: tag filters by tags code, SQL92 filters by properties, both as one `MessageFilter`.

How a pull uses it:

    wanted = message_filter(subscription, property_filter=config.enable_property_filter)   # cached; ReplyError
    found = store.reader.get(..., match=wanted.match_code)   # None when every tags code passes: nothing is compared
    slices = wanted.keep(found.slices)                       # the same list unless the filter is SQL92

An SQL pull whose `keep` returns nothing is NO_MATCHED_MESSAGE (20) with next_offset as the store gave it. A parked pull
compares the tags code on arrival and, for SQL92, just wakes: the re-run filters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tandemq.broker.sql92 import SqlError, SqlExpression, compile_sql
from tandemq.broker.subscriptions import CACHE_SIZE_MAX, SQL92, Subscription
from tandemq.broker.text_cache import TextCache
from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError
from tandemq.formats.record import tail_bounds
from tandemq.model.message import decode_properties

LONG_SQL_MIN = 1024
"""Characters: longer expressions take milliseconds to compile, up to 15."""
SQL_CACHE_SIZE_MAX = 1 << 18
"""Characters of SQL92 expressions that are kept compiled: some 25 MiB."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """One compiled subscription; immutable, so that all pulls of a group share it."""

    match_code: Callable[[int], bool] | None
    """For `MessageStore.get(match=…)`: does this tags code pass; None lets all pass."""
    sql: SqlExpression | None = None
    text_size: int = 0
    """Characters of the expression, by which it is counted while a pull waits with it."""

    def matches(self, tags_code: int, properties: Mapping[str, str]) -> bool:
        """Returns whether a message at hand passes both tests."""
        if self.match_code is not None and not self.match_code(tags_code):
            return False
        return self.sql is None or self.sql.matches(properties)

    def keep(self, records: list[memoryview]) -> list[memoryview]:
        """Returns the records whose properties pass; each view is one whole record of the log."""
        sql = self.sql
        if sql is None:
            return records
        return [record for record in records if sql.matches(_properties(record))]


def message_filter(subscription: Subscription, *, property_filter: bool) -> MessageFilter:
    """Returns the filter of a subscription; raises ReplyError with upstream's code, which says why it can't be had."""
    if subscription.is_tag:
        return _tag_filter(subscription.expression) if subscription.match_code is not None else EVERYTHING
    kind = subscription.expression_type
    if not property_filter:
        raise ReplyError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {kind}: set enablePropertyFilter=true",
        )
    if kind != SQL92:
        raise ReplyError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"expression type {kind!r}: TAG and SQL92 are known")
    return _sql_filter(subscription.expression)


def takes_long(expression: str | None, kind: str | None) -> bool:
    """Returns whether the filter of a subscription has to be compiled, and is better compiled beside the loop."""
    return kind == SQL92 and expression is not None and len(expression) > LONG_SQL_MIN and expression not in _sql_filter


def _compiled(expression: str) -> MessageFilter:
    try:
        return MessageFilter(None, compile_sql(expression), len(expression))
    except SqlError as error:
        raise ReplyError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None


def _of_tags(expression: str) -> MessageFilter:
    return MessageFilter(Subscription(topic="", expression=expression).match_code, None, len(expression))


EVERYTHING = MessageFilter(None)
_sql_filter = TextCache(_compiled, SQL_CACHE_SIZE_MAX)
_tag_filter = TextCache(_of_tags, CACHE_SIZE_MAX)


def _properties(record: memoryview) -> dict[str, str]:
    _, _, start, stop = tail_bounds(record, 0)
    return decode_properties(bytes(record[start:stop]))
