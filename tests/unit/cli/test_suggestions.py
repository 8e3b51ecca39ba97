"""Pressing Tab never fails and never waits long."""

from types import SimpleNamespace
from typing import Any

from tandemq.cli import suggestions


def test_without_a_cluster_there_are_no_suggestions() -> None:
    context: Any = SimpleNamespace(params={"namesrv": "127.0.0.1:1"})
    assert suggestions.complete_topic(context, "") == []
    assert suggestions.complete_group(context, "") == []
    assert suggestions.complete_broker(context, "x") == []
