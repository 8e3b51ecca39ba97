"""The end of the audit log that can be asked for."""

from types import SimpleNamespace
from typing import Any

from tandemq.codec.codes import RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.remoting.access.needs import Rule
from tandemq.remoting.access.trail import KEPT_MAX, AuditTrail

RULE = Rule((), is_audited=True)
PEER: Any = SimpleNamespace(peer="10.0.0.1:5")


def act(trail: AuditTrail, topic: str, code: int = ResponseCode.SUCCESS, caller: Any = None) -> None:
    command = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic, "AccessKey": "k", "Signature": "secret"})
    command.caller = caller
    trail.note(PEER, command, RULE, code, "why")


def test_lines_say_who_what_and_outcome_but_no_signature() -> None:
    trail = AuditTrail(lambda: 7)
    act(trail, "orders", caller=SimpleNamespace(name="ops"))
    (line,) = trail.newest(10)
    assert (line["atMs"], line["who"], line["what"], line["ok"]) == (7, "ops", "DELETE_TOPIC_IN_BROKER", True)
    assert "orders" in line["fields"]
    assert "secret" not in str(line)


def test_who_proves_no_account_can_not_push_out_what_others_did() -> None:
    trail = AuditTrail(lambda: 0)
    act(trail, "orders", caller=SimpleNamespace(name="ops"))
    for _ in range(KEPT_MAX + 1):
        act(trail, "x", ResponseCode.NO_PERMISSION)
    assert [line["who"] for line in trail.newest(10)] == ["ops"]
