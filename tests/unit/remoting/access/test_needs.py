"""What is declared beside handlers, and what becomes of it."""

import pytest

from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.access.needs import (
    CLUSTER,
    CREATE,
    DELETE,
    GET,
    GROUP,
    PUB,
    SUB,
    TOPIC,
    UPDATE,
    Need,
    is_admin,
    may,
    needs,
    on_cluster,
    on_group,
    on_topic,
    require,
    rule_of,
    topic_need,
)


class Somebody:
    name, is_admin = "somebody", False

    def may(self, need: Need) -> bool:
        return need.kind == GROUP

    def require(self, need: Need) -> None:
        if not self.may(need):
            raise ReplyError(16, "no")


def declared(*parts: object, **ext: str) -> list[Need]:
    @needs(*parts)  # type: ignore[arg-type]
    def handler() -> None: ...

    rule = rule_of(handler)
    assert rule is not None
    return list(rule.needs(Command(1, ext)))


def test_fields_name_topics_and_groups() -> None:
    parts = on_topic("topic", SUB), on_group("consumerGroup", SUB)
    assert declared(*parts, topic="T", consumerGroup="G") == [Need(TOPIC, "T", SUB), Need(GROUP, "G", SUB)]
    assert declared(*parts) == [Need(TOPIC, "", SUB), Need(GROUP, "", SUB)]


def test_fields_that_may_be_missing_or_hold_several() -> None:
    part = on_topic("topicList", GET, if_given=True, separator=";")
    assert declared(part) == []
    assert declared(part, topicList="A;;B") == [Need(TOPIC, "A", GET), Need(TOPIC, "B", GET)]


@pytest.mark.parametrize(
    ("name", "actions", "need"),
    [
        ("T", PUB, Need(TOPIC, "T", PUB)),
        ("%RETRY%G", SUB, Need(GROUP, "G", SUB)),
        ("%RETRY%G", PUB, Need(GROUP, "G", SUB)),
        ("%DLQ%G", SUB | GET, Need(GROUP, "G", SUB | GET)),
        ("%RETRY%G", PUB | SUB | GET, Need(GROUP, "G", SUB | GET)),
    ],
)
def test_retry_and_dead_letters_belong_to_their_group(name: str, actions: int, need: Need) -> None:
    assert topic_need(name, actions) == need


@pytest.mark.parametrize(
    ("part", "audited"),
    [
        (on_cluster(UPDATE), True),
        (on_topic("topic", CREATE | UPDATE), True),
        (on_group("group", DELETE), True),
        (on_cluster(GET), False),
        (on_group("group", SUB | UPDATE), False),  # what every consumer does is no act of an administrator
    ],
)
def test_changes_are_audited(part: object, audited: bool) -> None:
    @needs(part)  # type: ignore[arg-type]
    def handler() -> None: ...

    rule = rule_of(handler)
    assert rule is not None
    assert rule.is_audited is audited
    assert declared(part, topic="T", group="G")


def test_a_declaration_is_found_on_a_bound_method() -> None:
    class Family:
        @needs(audited=False)
        def one(self) -> None: ...

        def other(self) -> None: ...

    assert rule_of(Family().one) is not None
    assert rule_of(Family().other) is None


def test_handlers_ask_for_what_they_learn_later() -> None:
    nobody, somebody = Command(1), Command(1)
    somebody.caller = Somebody()
    for need in (Need(CLUSTER, "", UPDATE), Need(GROUP, "G", SUB)):
        require(nobody, need)
    require(somebody, Need(GROUP, "G", SUB))
    with pytest.raises(ReplyError):
        require(somebody, Need(GROUP, "G", SUB), Need(TOPIC, "T", SUB))
    assert may(nobody, Need(TOPIC, "T", SUB))
    assert not may(somebody, Need(TOPIC, "T", SUB))
    assert (is_admin(nobody), is_admin(somebody)) == (True, False)
