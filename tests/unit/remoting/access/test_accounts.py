"""The accounts of a server from its configuration."""

from pathlib import Path

import pytest

from tandemq.errors import ConfigError
from tandemq.remoting.access.accounts import Accounts, is_controlled, own_credentials
from tandemq.remoting.config import RemotingConfig

FILE = "accounts:\n- {accessKey: plain-one, secretKey: secret-1}\nglobalWhiteRemoteAddresses: [10.0.0.*]\n"


def accounts(**options: object) -> Accounts:
    made = Accounts(RemotingConfig(**options), cluster="C", wall_ms=lambda: 1, now=lambda: 0.0)  # type: ignore[arg-type]
    made.add_first_users()
    return made


def test_first_users_are_super_and_made_once() -> None:
    made = accounts(
        authentication_enabled=True,
        init_authentication_user='{"username":"root","password":"one"}',
        inner_client_credentials='{"accessKey":"inner","secretKey":"two"}',
    )
    assert [(user.name, user.kind) for user in made.users.users()] == [("inner", "Super"), ("root", "Super")]
    made.users.update("root", password="changed")
    made.add_first_users()
    root = made.users.user("root")
    assert root is not None
    assert root.password == "changed"


@pytest.mark.parametrize("text", ["root", "{}", '{"username":"root"}', '{"username":"root","password":""}', "[1]"])
def test_first_users_must_be_whole(text: str) -> None:
    with pytest.raises(ConfigError, match="initAuthenticationUser"):
        accounts(authentication_enabled=True, init_authentication_user=text)


def test_plain_accounts_and_users_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE)
    made = accounts(acl_enable=True, acl_file=str(path))
    made.users.create("user-one", "password")
    for name in ("plain-one", "user-one", "whitelisted:10.0.0.7"):
        assert made.is_known(name)
    assert not made.is_known("whitelisted:11.0.0.7")
    assert made.is_plain("plain-one")
    assert not made.is_plain("user-one")
    path.write_text(FILE.replace("plain-one", "plain-two"))
    assert made.reload()
    assert not made.is_known("plain-one")
    made.users.update("user-one", status="disable")
    assert not made.is_known("user-one")
    account = made.users.account("user-one")
    assert account is not None
    assert not account.is_admin


def test_when_access_is_controlled() -> None:
    assert not is_controlled(RemotingConfig())
    assert is_controlled(RemotingConfig(authentication_enabled=True))
    with pytest.raises(ConfigError, match="authenticationEnabled"):
        RemotingConfig(authorization_enabled=True)


def test_what_a_server_signs_with() -> None:
    assert own_credentials(RemotingConfig()) is None
    assert own_credentials(RemotingConfig(access_key="a", secret_key="b")) == ("a", "b", "")
    inner = RemotingConfig(inner_client_credentials='{"accessKey":"c","secretKey":"d"}')
    assert own_credentials(inner) == ("c", "d", "")
