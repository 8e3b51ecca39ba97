"""Checks what a user subscribes to: topic and filter expression. Pure.

Brokers compare only hashes of tags, so consumers compare the tags themselves again.
"""

from tandemq.codec.heartbeat import Subscription
from tandemq.errors import ClientError
from tandemq.model.topic import topic_name_problem

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"


def subscription(topic: str, expression: str, kind: str, version: int) -> Subscription:
    """Returns a checked subscription: to `*`, `A || B`, or by an SQL92 condition.

    `version` is the time at which it was made, in ms: the newest in a group counts.
    """
    for name, value in (("topic", topic), ("expression", expression)):
        if not isinstance(value, str):
            raise ClientError(f"{name}={value!r}: a str is needed")
    problem = topic_name_problem(topic)
    if problem:
        raise ClientError(problem)
    if kind not in (TAG, SQL92):
        raise ClientError(f"filter kind {kind!r}: must be {TAG} or {SQL92}")
    expression = expression.strip() or ALL
    if kind == SQL92 and expression == ALL:
        raise ClientError("an SQL92 filter needs a condition, e.g. \"a > 5 AND b = 'x'\"")
    found = Subscription(topic=topic, expression=expression, expression_type=kind, version=version)
    if kind == TAG and expression != ALL and not found.tags:
        raise ClientError(f"tag filter {expression!r}: names no tag; use * for all, or TagA || TagB")
    return found
