"""Where the name servers, TLS and credentials of a command come from."""

from pathlib import Path

import pytest

from tandemq.cli import connection, contexts
from tandemq.cli.contexts import Context, Contexts
from tandemq.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing: no contexts, no cluster, no variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("NAMESRV_ADDR", "TANDEMQ_CONTEXT", "TANDEMQ_TLS", *connection._TEXTS.values()):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(**by_name: Context) -> None:
    contexts.save(Contexts(next(iter(by_name)), by_name))


def test_the_last_resort_is_rocketmqs_port() -> None:
    assert connection.find_namesrv() == "127.0.0.1:9876"


def test_a_flag_wins_over_the_environment_and_that_over_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    saved(prod=Context(namesrv="c:1"), other=Context(namesrv="o:1"))
    assert connection.find_namesrv() == "c:1"
    monkeypatch.setenv("TANDEMQ_CONTEXT", "other")
    assert connection.find_namesrv() == "o:1"
    monkeypatch.setenv("NAMESRV_ADDR", "e:1")
    assert connection.find_namesrv() == "e:1"
    assert connection.find_namesrv("f:1") == "f:1"


def test_tls_files_of_the_environment_win_over_the_context(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ca.pem", "me.pem", "me.key", "other.pem"):
        (home / name).write_text("x")
    saved(
        prod=Context(
            namesrv="c:1",
            tls_ca=str(home / "ca.pem"),
            tls_cert=str(home / "me.pem"),
            tls_key=str(home / "me.key"),
            access_key="a",
            secret_key="s",
        )
    )
    found = connection.security()
    assert found["use_tls"] is True
    assert (found["tls_cert_file"], found["tls_key_file"]) == (str(home / "me.pem"), str(home / "me.key"))
    assert (found["access_key"], found["secret_key"]) == ("a", "s")
    monkeypatch.setenv("TANDEMQ_TLS_CA", str(home / "other.pem"))
    monkeypatch.setenv("TANDEMQ_TLS", "false")
    assert connection.security()["tls_ca_file"] == str(home / "other.pem")
    assert connection.security()["use_tls"] is False


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"TANDEMQ_TLS": "perhaps"}, "TANDEMQ_TLS='perhaps': must be true or false"),
        ({"TANDEMQ_TLS_CA": "/nowhere.pem"}, "TANDEMQ_TLS_CA=/nowhere.pem: there is no such file"),
        ({"TANDEMQ_TLS_CERT": __file__}, "needs its key"),
    ],
)
def test_mistakes_are_named(variables: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        connection.security(variables)
