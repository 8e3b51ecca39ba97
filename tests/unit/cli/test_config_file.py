"""Files and flags to config dataclasses: who set what, and what a mistake is answered with."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tandemq.cli.config_file import load
from tandemq.errors import ConfigError
from tandemq.namesrv.config import NamesrvConfig
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.settings import check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    port: int = setting("listenPort", 1, "A port.", minimum=1, maximum=10)
    ratio: float = setting("ratio", 0.5, "A ratio.", aliases=("oldRatio",))
    name: str = setting("brokerName", "x", "A name.")
    on: bool = setting("switchOn", False, "A switch.")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    port: int = setting("listenPort", 2, "The same option in another room.")


def write(tmp_path: Path, text: str, name: str = "broker.conf") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_file_flags_defaults_and_their_sources(tmp_path: Path) -> None:
    path = write(tmp_path, "# mine\nbrokerName = broker-a\nlistenPort=3\noldRatio: 0.75\n")
    loaded = load(path, [Sample, Other], overrides=["switchOn=true", "listenPort=4"], defaults={"listenPort": "5"})
    assert loaded[Sample] == Sample(port=4, ratio=0.75, name="broker-a", on=True)
    assert loaded[Other].port == 4
    assert loaded.sources == {
        "brokerName": "broker.conf:2",
        "listenPort": "--set",
        "ratio": "broker.conf:4",
        "switchOn": "--set",
    }
    assert loaded.warnings == ()


def test_no_file_gives_defaults() -> None:
    loaded = load(None, [Sample], defaults={"listenPort": "5"})
    assert loaded[Sample] == Sample(port=5)
    assert loaded.sources == {"listenPort": "default of this command"}


def test_toml_with_tables(tmp_path: Path) -> None:
    path = write(tmp_path, 'listenPort = 3\n[broker]\nbrokerName = "b"\nswitchOn = true\nratio = 0.25\n', "b.toml")
    assert load(path, [Sample])[Sample] == Sample(port=3, name="b", on=True, ratio=0.25)


def test_unknown_names_in_a_file_warn_with_the_nearest(tmp_path: Path) -> None:
    """A user's broker.conf has options we have no use for: it starts all the same, but not with a mistyped one."""
    path = write(tmp_path, "brokerNames=x\nsendMessageThreadPoolNums=16\nnonsenseOption=1\n")
    first, second, third = load(path, [Sample], lenient=True).warnings
    assert first == "broker.conf:1: brokerNames: no such option; did you mean brokerName?"
    assert "no effect in TandemQ" in second
    assert "tandemq config" in third
    with pytest.raises(ConfigError, match=r"brokerNames: no such option; did you mean brokerName\?.*--lenient"):
        load(path, [Sample])


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("brokerNames=x", r"did you mean brokerName\?"),
        ("listenPort", "key=value expected"),
        ("=5", "key=value expected"),
        ("listenPort=eleven", "--set: listenPort='eleven': must be a whole number"),
        ("listenPort=11", "--set: listenPort=11: must be from 1 to 10"),
        ("switchOn=1", "must be true or false"),
    ],
)
def test_wrong_flags_are_errors(flag: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(None, [Sample], overrides=[flag])


def test_wrong_values_in_a_file_name_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf:2: listenPort=99: must be from 1 to 10"):
        load(write(tmp_path, "\nlistenPort=99\n"), [Sample])
    with pytest.raises(ConfigError, match=r"broker\.conf: line 1"):
        load(write(tmp_path, "brokerName=\\uXYZ\n"), [Sample])


@pytest.mark.parametrize("text", ["a = ", "a = [1,2]\n", "[[x]]\ny=1\n"])
def test_toml_that_is_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"b\.toml"):
        load(write(tmp_path, text, "b.toml"), [Sample])


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        load(tmp_path / "missing.conf", [Sample])
    (tmp_path / "huge.conf").write_bytes(b"#" * 5_000_000)
    with pytest.raises(ConfigError, match="limit"):
        load(tmp_path / "huge.conf", [Sample])


def test_latin_1_as_java_reads_it(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_bytes(b"brokerName=M\xfcnchen\n")
    assert load(tmp_path / "b.conf", [Sample])[Sample].name == "München"


def test_real_configs_load() -> None:
    loaded = load(
        None, [NamesrvConfig, RemotingConfig], overrides=["orderMessageEnable=true", "tls.server.mode=disabled"]
    )
    assert loaded[NamesrvConfig].order_message_enable is True
    assert loaded[RemotingConfig].tls_mode is TlsMode.DISABLED
    with pytest.raises(ConfigError, match="one of disabled, permissive, enforcing"):
        load(None, [RemotingConfig], overrides=["tlsMode=on"])
