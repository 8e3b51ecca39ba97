"""Lines of the audit log."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tandemq.codec.command import Command
from tandemq.remoting.access import audit
from tandemq.remoting.access.needs import Rule

PEER: Any = SimpleNamespace(peer="10.0.0.9:5000")


def noted(caplog: pytest.LogCaptureFixture, command: Command, code: int = 0, *, shows_body: bool = False) -> str:
    with caplog.at_level(logging.INFO, "tandemq.audit"):
        audit.note(PEER, command, Rule((), is_audited=True, shows_body=shows_body), code, "because")
    return caplog.records[-1].name + " " + caplog.records[-1].getMessage()


def test_who_from_where_what_outcome(caplog: pytest.LogCaptureFixture) -> None:
    command = Command(17, {"topic": "T", "AccessKey": "root", "Signature": "sig", "SecurityToken": "tok"})
    command.caller = SimpleNamespace(name="root")
    line = noted(caplog, command)
    assert line == "tandemq.audit who='root' from=10.0.0.9:5000 what=UPDATE_AND_CREATE_TOPIC topic='T' outcome='ok'"
    assert "outcome='code 16: because'" in noted(caplog, command, 16)


def test_names_that_nobody_proved_are_marked_and_go_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    """An attacker who proves nothing must not be able to fill the disk with lines that are never left out."""
    line = noted(caplog, Command(17, {"topic": "T", "AccessKey": "root"}), 16)
    assert line.startswith("tandemq.audit.unproven who='?root'")
    assert noted(caplog, Command(17), 16).startswith("tandemq.audit.unproven who='-'")


def test_without_access_control_everything_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    assert noted(caplog, Command(17, {"topic": "T"})).startswith("tandemq.audit who='-'")


def test_bodies_are_quoted_only_where_they_hold_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    command = Command(25, {}, b"key=value\nother=\x1b[31m" + b"x" * 1000)
    assert "key=value" not in noted(caplog, command)
    line = noted(caplog, command, shows_body=True)
    assert "body='key=value\\nother=\\x1b[31m" in line
    assert len(line) < 800


def test_long_requests_make_short_lines(caplog: pytest.LogCaptureFixture) -> None:
    line = noted(caplog, Command(17, {f"field-{n}": "v" * 10_000 for n in range(200)}))
    assert "184 fields more" in line
    assert len(line) < 4000
