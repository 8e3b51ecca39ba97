"""The gate in front of a server's handlers: who made a request, and whether that account may have it answered.

A request from a globally white-listed address passes. Any other must carry the access key of an account, and either
come from that account's own white-listed address or have a valid signature: RocketMQ's, or the one between our own
parts, which alone is good enough for requests of our own range of codes. Then the account must hold what the handler
declares (`needs.py`). Every refusal is answered NO_PERMISSION with the reason; an account above its quota, SYSTEM_BUSY.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from tandemq.codec.acl import ACCESS_KEY, SIGNATURE, SIGNATURE_256, SessionCheck, SigningKey
from tandemq.codec.codes import ResponseCode, code_name, is_own_code
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.model.topic import is_internal_topic
from tandemq.remoting.access.needs import (
    ACTION_NAMES,
    CLUSTER,
    CREATE,
    DELETE,
    GET,
    LIST,
    PUB,
    SUB,
    TOPIC,
    UPDATE,
    Caller,
    Need,
    Rule,
)
from tandemq.remoting.access.quotas import Quotas
from tandemq.remoting.connection import Connection

log = logging.getLogger("tandemq.remoting")

WHITELISTED = "whitelisted:"
"""Before the address of a caller without an account."""
_READS = SUB | GET | LIST
_WRITES = PUB | CREATE | UPDATE | DELETE


class Account(Protocol):
    """One account, of a file or of the table of users."""

    @property
    def access_key(self) -> str: ...

    @property
    def signing_key(self) -> SigningKey: ...

    @property
    def is_admin(self) -> bool: ...

    @property
    def problem(self) -> str:
        """Returns why the account can't be used; empty if it can."""
        ...

    @property
    def trusts(self) -> Callable[[str], bool]:
        """Whether requests from an address need no signature."""
        ...

    def may(self, need: Need, host: str) -> bool: ...


FindAccount = Callable[[str], Account | None]
"""Returns the account of an access key."""


class AccountCaller:
    """An account at an address: who a handler is told made the request."""

    __slots__ = ("_account", "_cluster", "_host")

    def __init__(self, account: Account, host: str, cluster: str) -> None:
        self._account = account
        self._host = host
        self._cluster = cluster

    @property
    def name(self) -> str:
        return self._account.access_key

    @property
    def is_admin(self) -> bool:
        return self._account.is_admin

    def may(self, need: Need) -> bool:
        """Returns whether the account may do this."""
        return self._account.is_admin or self._account.may(self._really(need), self._host)

    def require(self, need: Need) -> None:
        if not self.may(need):
            need = self._really(need)
            what = f"{need.kind} {need.name[:255]!r}" if need.kind != CLUSTER else "the cluster (admins have it)"
            wanted = " or ".join(name for bit, name in ACTION_NAMES.items() if need.actions & bit)
            raise _refusal(f"{self.name!r} has no {wanted} permission for {what}")

    def _really(self, need: Need) -> Need:
        """Returns what is needed for internal topics: they are a matter of the cluster, whatever they are called."""
        if need.kind == TOPIC and not need.made_for and is_internal_topic(need.name, self._cluster):
            return Need(CLUSTER, "", (GET if need.actions & _READS else 0) | (UPDATE if need.actions & _WRITES else 0))
        return need


class TrustedCaller:
    """Whoever calls from a globally white-listed address."""

    __slots__ = ("name",)

    def __init__(self, host: str) -> None:
        self.name = f"{WHITELISTED}{host}"

    @property
    def is_admin(self) -> bool:
        return True

    def may(self, need: Need) -> bool:
        return True

    def require(self, need: Need) -> None:
        pass


class AccessControl:
    """Checks every request of a server before its handler sees it."""

    def __init__(
        self,
        find: Sequence[FindAccount],
        *,
        trusts: Callable[[str], bool] = lambda host: False,
        cluster: str = "",
        classic_signatures: bool = True,
        quotas: Quotas | None = None,
        now: Callable[[], float],
    ) -> None:
        self._find = tuple(find)
        self._trusts = trusts
        self._cluster = cluster
        self._classic_signatures = classic_signatures
        self._quotas = quotas
        self._now = now

    def admit(self, connection: Connection, command: Command, rule: Rule | None, size: int) -> None:
        """Sets `command.caller`; ReplyError if the request must not reach its handler.

        `rule` is what the handler declares, `size` the number of bytes the request came in.
        """
        host = connection.host
        try:
            self.check(host, command, rule, connection.session_check)
        except ReplyError as error:
            log.warning("request refused code=%s from=%s reason=%r", code_name(command.code), host, error.remark)
            raise
        caller = command.caller
        connection.account = caller.name if caller is not None else ""
        if self._quotas is not None and caller is not None and not caller.is_admin:
            self._quotas.take(caller.name, size, self._now())

    def check(self, host: str, command: Command, rule: Rule | None, session: SessionCheck | None = None) -> None:
        """Does what `admit` does, but for the quota, with what is known of the connection."""
        if rule is not None and rule.is_open:
            return
        if self._trusts(host):
            command.caller = TrustedCaller(host)
        else:
            command.caller = AccountCaller(self._authenticated(host, command, session), host, self._cluster)
        if rule is None:
            raise _refusal(f"nothing is declared about {code_name(command.code)}, so nobody may use it")
        if not command.caller.is_admin:
            for need in rule.needs(command):
                command.caller.require(need)

    def _authenticated(self, host: str, command: Command, session: SessionCheck | None) -> Account:
        ext = command.ext
        key = ext.get(ACCESS_KEY, "")
        account = self.account(key)
        if account is None:
            raise _refusal(f"no account for AccessKey {key[:40]!r}" if key else "no AccessKey given")
        if account.problem:
            raise _refusal(account.problem)
        if account.trusts(host):
            return account
        if SIGNATURE_256 in ext:
            if session is None:
                raise _refusal(f"{SIGNATURE_256} without a challenge: ask for one on this connection first")
            problem = session.problem(command, account.signing_key, int(self._now() * 1000))
            if problem is not None:
                raise _refusal(f"the {SIGNATURE_256} of {key!r} {problem}")
            return account
        if SIGNATURE not in ext:
            raise _refusal("no Signature given")
        if is_own_code(command.code) or not self._classic_signatures:
            raise _refusal(f"{code_name(command.code)} needs a {SIGNATURE_256}: others can repeat a {SIGNATURE}")
        if not account.signing_key.has_signed(ext, command.body):
            raise _refusal(f"the {SIGNATURE} of {key!r} does not fit: check its secret key")
        return account

    def may(self, connection: Connection, need: Need) -> bool:
        """Returns whether the account whose requests came by a connection may do this."""
        host = connection.host
        account = self.account(connection.account)
        if account is None or account.problem:
            return self._trusts(host)
        return AccountCaller(account, host, self._cluster).may(need)

    def caller(self, name: str, host: str) -> Caller:
        """Returns who made a request that another broker of the group has authenticated; ReplyError if nobody could."""
        if name.startswith(WHITELISTED):
            if not self._trusts(name.removeprefix(WHITELISTED)):
                raise _refusal(f"{name!r} is not white-listed here")
            return TrustedCaller(name.removeprefix(WHITELISTED))
        account = self.account(name)
        if account is None:
            raise _refusal(f"no account for AccessKey {name[:40]!r}" if name else "it is not said for whom this is")
        if account.problem:
            raise _refusal(account.problem)
        return AccountCaller(account, host, self._cluster)

    def account(self, key: str) -> Account | None:
        """Returns the account of an access key."""
        if key:
            for find in self._find:
                if (account := find(key)) is not None:
                    return account
        return None


def _refusal(reason: str) -> ReplyError:
    return ReplyError(ResponseCode.NO_PERMISSION, f"access refused: {reason}")
