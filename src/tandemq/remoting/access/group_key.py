"""The group's shared key at the remoting port: orders from broker to broker, and an operator's, prove it.

Whoever holds `haSharedKey` may copy the whole log, so with it everything may be ordered, as with an administrator's
account. It signs as an account of its own, with a secret derived from the key, for one connection and never in
RocketMQ's way, which others can repeat. Handlers say `key=True` beside their needs:

    access control   key      who may order
    off              none     everybody
    off              set      the key
    on               none     an account with the permission
    on               set      the key, or an account with the permission
"""

import hmac
from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, Final

from tandemq.codec.acl import ACCESS_KEY, SIGNATURE_256, Credentials, SigningKey
from tandemq.codec.codes import ResponseCode, code_name
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.access.needs import Need, rule_of
from tandemq.remoting.connection import Connection

KEY_ACCOUNT: Final = "haSharedKey:"
"""The access key of requests that prove the group's key; no user can have a name with a colon at its end."""


def key_credentials(shared_key: str) -> Credentials:
    """Returns the account that proves a key."""
    secret = hmac.digest(shared_key.encode(), b"tandemq-ha orders\0", "sha256").hex()
    return Credentials(KEY_ACCOUNT, secret)


class _SessionOnlyKey(SigningKey):
    """A secret with which no request in RocketMQ's way is accepted."""

    def has_signed(self, ext: Mapping[str, str], body: bytes | memoryview) -> bool:
        return False


class KeyAccount:
    """The key as an account of a server."""

    access_key = KEY_ACCOUNT
    is_admin = True
    problem = ""

    def __init__(self, shared_key: str) -> None:
        self.signing_key: SigningKey = _SessionOnlyKey(key_credentials(shared_key).secret_key)

    def trusts(self, host: str) -> bool:
        """Returns False: no address stands in for the key."""
        return False

    def may(self, need: Need, host: str) -> bool:
        return True

    def find(self, access_key: str) -> "KeyAccount | None":
        """Returns this account by its name, as a table of accounts would."""
        return self if access_key == KEY_ACCOUNT else None

    def guard(
        self,
        handlers: Mapping[int, Callable[..., Any]],
        now: Callable[[], float],
        spares: Callable[[Command], bool] = lambda command: False,
    ) -> dict[int, Any]:
        """Returns the handlers of a server without access control; those that say so want the key proven.

        `spares` names requests that need no proof after all.
        """

        def guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
            def checked(connection: Connection, command: Command) -> Any:
                if not spares(command):
                    self._check(connection, command, now())
                return handler(connection, command)

            return update_wrapper(checked, handler)

        wanted = {code for code, handler in handlers.items() if (rule := rule_of(handler)) and rule.proves_key}
        return {code: guarded(handler) if code in wanted else handler for code, handler in handlers.items()}

    def _check(self, connection: Connection, command: Command, now: float) -> None:
        problem: str | None
        if command.ext.get(ACCESS_KEY) != KEY_ACCOUNT or SIGNATURE_256 not in command.ext:
            problem = "is not given: brokers have it in their conf, `tandemq` takes --ha-key-file"
        elif connection.session_check is None:
            problem = "signs nothing without a challenge: ask for one on this connection first"
        else:
            problem = connection.session_check.problem(command, self.signing_key, int(now * 1000))
        if problem is not None:
            raise ReplyError(
                ResponseCode.NO_PERMISSION,
                f"access refused: {code_name(command.code)} needs the haSharedKey of this group, which {problem}",
            )
