"""All accounts of one server, put together from its configuration: plain_acl.yml, and users that change at run time."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tandemq.codec.acl import Credentials
from tandemq.errors import ConfigError
from tandemq.remoting.access.control import WHITELISTED, AccessControl, Account, FindAccount
from tandemq.remoting.access.group_key import KeyAccount
from tandemq.remoting.access.needs import Need
from tandemq.remoting.access.plain import PlainAclFile
from tandemq.remoting.access.quotas import Quotas
from tandemq.remoting.access.users import SUPER, AccessProblem, UserTable
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.connection import Connection

RELOAD_SECONDS = 1.0
"""How often a plain_acl.yml is checked for changes."""


class Accounts:
    """Who may come in. `control` is the server's gate; `users` may be changed while it stands."""

    def __init__(
        self,
        config: RemotingConfig,
        *,
        cluster: str = "",
        group_key: KeyAccount | None = None,
        wall_ms: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self.plain = PlainAclFile(Path(config.acl_file)) if config.acl_enable else None
        authorize = config.authorization_enabled or config.acl_enable
        self.users = UserTable(wall_ms, cluster=cluster, authorize=authorize)
        find: list[FindAccount] = [self.users.account]
        if group_key is not None:
            find.insert(0, group_key.find)
        if self.plain is not None:
            find.append(self._plain_account)
        limits = config.requests_per_account_max, config.bytes_per_account_max
        self.control = AccessControl(
            find,
            trusts=self._trusts,
            cluster=cluster,
            classic_signatures=config.acl_classic_signatures,
            quotas=Quotas(*limits) if any(limits) else None,
            now=now,
        )
        self._first_users = [user for user in (_first_user(config), inner_credentials(config)) if user is not None]

    def add_first_users(self) -> None:
        """Makes the super users that the configuration names, unless they exist; call it after users were loaded."""
        for user in self._first_users:
            if self.users.user(user.access_key) is None:
                try:
                    self.users.create(user.access_key, user.secret_key, SUPER)
                except AccessProblem as error:
                    raise ConfigError(f"a super user of the configuration: {error}") from None

    def reload(self) -> bool:
        """Reads plain_acl.yml again if it changed; returns whether it did.

        Half a megabyte of YAML takes a second and a half, so that servers call this beside their loop.
        """
        return self.plain is not None and self.plain.reload()

    def is_plain(self, name: str) -> bool:
        """Returns whether plain_acl.yml has an account of this name."""
        return self._plain_account(name) is not None

    def is_known(self, name: str) -> bool:
        """Returns whether this can be the account of a connection any more."""
        if name.startswith(WHITELISTED):
            return self._trusts(name.removeprefix(WHITELISTED))
        account = self.control.account(name)
        return account is not None and not account.problem

    def may(self, connection: Connection, need: Need) -> bool:
        """Returns whether the account whose requests came by a connection may do this."""
        return self.control.may(connection, need)

    def _plain_account(self, key: str) -> Account | None:
        return self.plain.accounts.by_key.get(key) if self.plain is not None else None

    def _trusts(self, host: str) -> bool:
        return self.plain is not None and self.plain.accounts.trusts(host)


def is_controlled(config: RemotingConfig) -> bool:
    """Returns whether a server with this configuration asks for accounts at all."""
    return config.acl_enable or config.authentication_enabled


def own_credentials(config: RemotingConfig) -> Credentials | None:
    """Returns the account with which a server makes requests of its own."""
    if config.access_key:
        return Credentials(config.access_key, config.secret_key)
    return inner_credentials(config)


def inner_credentials(config: RemotingConfig) -> Credentials | None:
    """Returns what RocketMQ 5's innerClientAuthenticationCredentials says."""
    text = config.inner_client_credentials
    return _pair(text, "innerClientAuthenticationCredentials", "accessKey", "secretKey") if text else None


def _first_user(config: RemotingConfig) -> Credentials | None:
    text = config.init_authentication_user
    return _pair(text, "initAuthenticationUser", "username", "password") if text else None


def _pair(text: str, option: str, name_key: str, secret_key: str) -> Credentials:
    try:
        found: Any = json.loads(text)
        name, secret = found[name_key], found[secret_key]
    except (ValueError, TypeError, KeyError):
        name = secret = None
    if not isinstance(name, str) or not isinstance(secret, str) or not name or not secret:
        raise ConfigError(f'{option}: {{"{name_key}":"…","{secret_key}":"…"}} expected, both filled in')
    return Credentials(name, secret)
