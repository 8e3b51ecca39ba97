"""The audit log: one line for every act of an administrator, refused or not: who, from where, what, outcome.

It is the logger `tandemq.audit`; a daemon writes it to a file of its own where `auditLogPath` names one. What
accounts did is never left out. Requests that prove no account go to `tandemq.audit.unproven`, of which floods are cut
short, or anybody could fill the disk. What proves an account, and bodies that may hold a password, are not shown.
"""

import logging

from tandemq.codec.acl import ACCESS_KEY, without_signature
from tandemq.codec.codes import ResponseCode, code_name
from tandemq.codec.command import Command
from tandemq.remoting.access.needs import Rule
from tandemq.remoting.connection import Connection

log = logging.getLogger("tandemq.audit")
unproven = logging.getLogger("tandemq.audit.unproven")

FIELDS_MAX = 16
VALUE_LENGTH_MAX = 128
BODY_LENGTH_MAX = 512


def note(connection: Connection, command: Command, rule: Rule, code: int, remark: str) -> None:
    """Writes the line of one request that was answered with `code`."""
    caller = command.caller
    # A name that nobody has proven is shown as what it is.
    who = caller.name if caller is not None else f"?{command.ext[ACCESS_KEY]}" if ACCESS_KEY in command.ext else "-"
    outcome = "ok" if code == ResponseCode.SUCCESS else f"code {code}: {remark}"
    is_proven = caller is not None or code == ResponseCode.SUCCESS
    (log if is_proven else unproven).info(
        "who=%s from=%s what=%s %s outcome=%s",
        _short(who), connection.peer, code_name(command.code), described(command, rule), _short(outcome),
    )  # fmt: skip


def described(command: Command, rule: Rule) -> str:
    """Returns the fields of a request, without what proves its account, and the start of a body that may be shown."""
    fields = sorted(without_signature(command.ext).items())
    shown = [f"{name[:VALUE_LENGTH_MAX]}={_short(value)}" for name, value in fields[:FIELDS_MAX]]
    if len(fields) > FIELDS_MAX:
        shown.append(f"(and {len(fields) - FIELDS_MAX} fields more)")
    if rule.shows_body and len(command.body):
        text = bytes(command.body[:BODY_LENGTH_MAX]).decode("utf-8", "replace")
        shown.append(f"body={text!r}{'…' if len(command.body) > BODY_LENGTH_MAX else ''}")
    return " ".join(shown)


def _short(value: str) -> str:
    return repr(value if len(value) <= VALUE_LENGTH_MAX else value[:VALUE_LENGTH_MAX] + "…")
