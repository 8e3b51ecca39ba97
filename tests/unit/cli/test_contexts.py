"""The file of contexts: private, and never half written."""

from pathlib import Path

import pytest

from tandemq.cli import contexts
from tandemq.cli.contexts import Context, Contexts
from tandemq.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_what_was_saved_is_loaded() -> None:
    assert contexts.load() == Contexts("", {})
    found = Contexts("a", {"a": Context(namesrv="h:1", tls=True), "b": Context(namesrv="h:2")})
    contexts.save(found)
    assert contexts.load() == found
    assert contexts.path().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"contexts": {"a": 5}}', '{"contexts": {"a": {"namesrv": "nowhere"}}}']
)
def test_a_file_that_is_none_is_named(text: str) -> None:
    contexts.path().parent.mkdir(parents=True)
    contexts.path().write_text(text)
    with pytest.raises(ConfigError):
        contexts.load()


def test_a_context_is_whole() -> None:
    for wrong in ({"access_key": "a"}, {"tls_cert": "a"}, {"namesrv": "a"}):
        with pytest.raises(ConfigError):
            Context(**wrong)  # type: ignore[arg-type]
    assert "secret" not in repr(Context(namesrv="h:1", access_key="a", secret_key="secret"))


def test_names_are_plain() -> None:
    for name in ("", "-x", "a b", "x" * 64):
        with pytest.raises(ConfigError):
            contexts.check_name(name)
    contexts.check_name("prod-1.eu")
