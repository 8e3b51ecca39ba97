"""Every act leaves a line in the journal, whatever happens; what destroys wants the name typed."""

from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.console.acts import acting, typed
from tandemq.console.journal import Journal
from tandemq.errors import ClientError


def visit(**form: str) -> Any:
    return SimpleNamespace(
        request=SimpleNamespace(client=SimpleNamespace(host="127.0.0.1")), console=SimpleNamespace(journal=Journal()),
        now_ms=7, who="ops", field=lambda name: form.get(name, ""),
    )  # fmt: skip


def test_a_failed_act_is_in_the_journal_with_its_reason() -> None:
    one = visit()
    with pytest.raises(ClientError), acting(one, "delete topic", "orders"):
        raise ClientError("no such topic")
    (act,) = one.console.journal.newest()
    assert (act.ok, act.outcome, act.who, act.source, act.at_ms) == (False, "no such topic", "ops", "127.0.0.1", 7)


def test_a_done_act_says_so() -> None:
    one = visit()
    with acting(one, "delete topic", "orders"):
        pass
    assert one.console.journal.newest()[0].outcome == "done"


@pytest.mark.parametrize("given", ["", "Orders", "orders "])
def test_only_the_very_name_is_taken(given: str) -> None:
    with pytest.raises(ClientError, match="nothing was done"):
        typed(visit(name=given), "orders")
    typed(visit(name="orders"), "orders")
