"""What a group wants of a topic: an expression, and the test it makes of a consume queue entry.

The codes are always computed from the expression text: C++ clients send wrong ones in their heartbeats (atoi of tags).
A tag filter only narrows by hash; clients compare the text again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from tandemq.errors import InvalidRequest
from tandemq.model.message import java_hash

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"
EXPRESSION_LENGTH_MAX = 32_768
TAGS_MAX = 4096


class BadExpression(InvalidRequest):
    """A subscription expression that can't be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One topic of a group's subscription (SubscriptionData)."""

    topic: str
    expression: str = ALL
    expression_type: str = TAG
    version: int = 0
    tags: tuple[str, ...] = ()
    codes: frozenset[int] = field(default=frozenset())
    class_filter_mode: bool = False

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG

    @property
    def match_code(self) -> Callable[[int], bool] | None:
        """The test on a consume queue entry's tags code, or None when every entry passes (also for SQL92)."""
        return self.codes.__contains__ if self.codes else None


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, version: int = 0
) -> Subscription:
    """A subscription from its text (FilterAPI.build); BadExpression names what is wrong."""
    kind = expression_type or TAG
    text = (expression or "").strip()
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise BadExpression(f"the expression has {len(text)} characters, the limit is {EXPRESSION_LENGTH_MAX}")
    if kind != TAG:
        if not text:
            raise BadExpression(f"an expression of type {kind} can't be empty")
        return Subscription(topic=topic, expression=text, expression_type=kind, version=version)
    tags, codes = _tags(text)
    return Subscription(topic=topic, expression=text or ALL, version=version, tags=tags, codes=codes)


@lru_cache(maxsize=4096)
def _tags(text: str) -> tuple[tuple[str, ...], frozenset[int]]:
    if text in ("", ALL):
        return (), frozenset()
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||") if part.strip()))
    if not tags:
        raise BadExpression(f"no tag in the expression {text[:80]!r}; write TagA || TagB, or * for all")
    if len(tags) > TAGS_MAX:
        raise BadExpression(f"{len(tags)} tags in one expression, the limit is {TAGS_MAX}")
    return tags, frozenset(java_hash(tag) for tag in tags)


def subscription_to_json(subscription: Subscription) -> dict[str, Any]:
    """The SubscriptionData shape of admin answers."""
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.codes),
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": list(subscription.tags),
        "topic": subscription.topic,
    }
