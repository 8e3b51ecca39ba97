"""What a group wants of a topic: an expression, and the test it makes of a consume queue entry.

The codes are always computed from the expression text: C++ clients send wrong ones in their heartbeats (atoi of tags).
A tag filter only narrows by hash; clients compare the text again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tandemq.broker.text_cache import TextCache
from tandemq.errors import InvalidRequest
from tandemq.model.message import java_hash

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"
EXPRESSION_LENGTH_MAX = 32_768
TAGS_MAX = 4096
CACHE_SIZE_MAX = 1 << 18
"""Characters of tag expressions whose hashes are kept: some 10 MiB."""


class BadExpression(InvalidRequest):
    """A subscription expression that can't be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """One topic of a group's subscription (SubscriptionData). It holds the text alone: what clients tell is kept for
    as long as they live, and tags with their hashes take thirty times as much."""

    topic: str
    expression: str = ALL
    expression_type: str = TAG
    version: int = 0
    class_filter_mode: bool = False

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG

    @property
    def tags(self) -> tuple[str, ...]:
        """Returns the tags of a TAG expression; none stands for all."""
        return _tags(self.expression)[0] if self.is_tag else ()

    @property
    def codes(self) -> frozenset[int]:
        """Returns their hashes, as queue entries have them."""
        return _tags(self.expression)[1] if self.is_tag else frozenset()

    @property
    def match_code(self) -> Callable[[int], bool] | None:
        """Returns the test on a consume queue entry's tags code, or None when every entry passes (also for SQL92)."""
        codes = self.codes
        return codes.__contains__ if codes else None


def parse_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, version: int = 0
) -> Subscription:
    """Returns a subscription from its text (FilterAPI.build); raises BadExpression with what is wrong."""
    kind = expression_type or TAG
    text = (expression or "").strip()
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise BadExpression(f"the expression has {len(text)} characters, the limit is {EXPRESSION_LENGTH_MAX}")
    if kind != TAG:
        if not text:
            raise BadExpression(f"an expression of type {kind} can't be empty")
        return Subscription(topic=topic, expression=text, expression_type=kind, version=version)
    _tags(text or ALL)
    return Subscription(topic=topic, expression=text or ALL, version=version)


def _split(text: str) -> tuple[tuple[str, ...], frozenset[int]]:
    if text in ("", ALL):
        return (), frozenset()
    tags = tuple(dict.fromkeys(part.strip() for part in text.split("||") if part.strip()))
    if not tags:
        raise BadExpression(f"no tag in the expression {text[:80]!r}; write TagA || TagB, or * for all")
    if len(tags) > TAGS_MAX:
        raise BadExpression(f"{len(tags)} tags in one expression, the limit is {TAGS_MAX}")
    return tags, frozenset(java_hash(tag) for tag in tags)


_tags = TextCache(_split, CACHE_SIZE_MAX)


def subscription_to_json(subscription: Subscription) -> dict[str, Any]:
    """Returns the SubscriptionData shape of admin answers."""
    return {
        "classFilterMode": subscription.class_filter_mode,
        "codeSet": sorted(subscription.codes),
        "expressionType": subscription.expression_type,
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": list(subscription.tags),
        "topic": subscription.topic,
    }
