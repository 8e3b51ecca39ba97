"""`tandemq store verify|dump|rebuild` as an operator runs them, on stores that real RocketMQ brokers wrote."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.golden import manifest, unpack

from tandemq.errors import CorruptLog
from tandemq.store.discover import discover_config
from tandemq.store.disk import FileDisk
from tandemq.store.message_store import MessageStore

SEGMENT = 262144
VERSIONS = ("4.9.7", "5.3.3")


def tandemq(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tandemq", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb"},
        timeout=60,
    )


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("golden")
    for version in VERSIONS:
        unpack(version, root / version)
    return root


@pytest.fixture
def store(unpacked: Path, tmp_path: Path) -> Path:
    """A copy of a store that was closed cleanly, to be damaged."""
    return Path(shutil.copytree(unpacked / "5.3.3" / "slave-clean", tmp_path / "store"))


def segments(root: Path) -> list[Path]:
    """Log files that hold something."""
    return [path for path in sorted((root / "commitlog").iterdir()) if any(path.read_bytes()[:8])]


def dumped(*arguments: str | Path, whole: bool = True) -> list[dict[str, Any]]:
    done = tandemq("store", "dump", *arguments, "--json")
    assert done.returncode == (0 if whole else 1), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def as_client_sees(message: dict[str, Any]) -> dict[str, Any]:
    """The client adds the queue's range to the properties; the 5.x client clears the bit of what it unpacked."""
    kept = {k: v for k, v in message["properties"].items() if k not in ("MIN_OFFSET", "MAX_OFFSET")}
    sys_flag = message["sysFlag"]
    return {**message, "properties": kept, "sysFlag": sys_flag & ~1 if sys_flag & 0x700 else sys_flag}


def files(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_prints_what_the_java_client_read(unpacked: Path, version: str) -> None:
    """Every message of the manifest, under its very field names and with its values; nothing in the store changes."""
    root = unpacked / version / "slave-clean"
    before = files(root)
    found = {(m["topic"], m["queueId"], m["queueOffset"]): m for m in dumped(root)}
    for message in manifest(version)[0]:
        ours = found[message["topic"], message["queueId"], message["queueOffset"]]
        assert list(ours) == list(message)
        assert as_client_sees(ours) == as_client_sees(message)
    assert files(root) == before


def test_dump_of_one_queue(unpacked: Path) -> None:
    """In queue order from a queue offset on, at most so many; the same for people, one line each."""
    root = unpacked / "5.3.3" / "slave-clean"
    where = ("--topic", "plain", "--queue", "0", "--from", "2", "--limit", "3")
    assert [message["queueOffset"] for message in dumped(root, *where)] == [2, 3, 4]
    lines = tandemq("store", "dump", root, *where).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["plain-0@2", "plain-0@3", "plain-0@4"]


@pytest.mark.parametrize("version", VERSIONS)
def test_verify_finds_a_clean_store_whole(unpacked: Path, version: str) -> None:
    done = tandemq("store", "verify", unpacked / version / "slave-clean", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["records"] > 100
    assert report["problems"] == []


def test_verify_names_a_flipped_byte(store: Path) -> None:
    """The file and the offset of the record that is not what was written; what is behind it is still read."""
    first = segments(store)[0]
    target = dumped(store, "--topic", "plain", "--limit", "1")[0]
    data = bytearray(first.read_bytes())
    data[target["physicalOffset"] + 90] ^= 1
    first.write_bytes(data)
    done = tandemq("store", "verify", store)
    assert done.returncode == 1
    assert f"commitlog/{first.name} offset {target['physicalOffset']}" in done.stdout
    assert "store rebuild" in done.stdout
    assert done.stdout.count("problem ") == 1


def test_dump_steps_over_a_damaged_record_and_rebuild_says_where_it_is(store: Path) -> None:
    """The head of one record is gone: dump shows all others and says what it skipped, and rebuild where it was."""
    whole = dumped(store)
    target = whole[3]
    first = segments(store)[0]
    data = bytearray(first.read_bytes())
    data[target["physicalOffset"] : target["physicalOffset"] + 8] = b"\xee" * 8
    first.write_bytes(data)
    done = tandemq("store", "dump", store, "--json")
    assert done.returncode == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [m for m in whole if m != target]
    assert f"at offset {target['physicalOffset']}" in done.stderr
    assert "skipped" in done.stderr
    rebuilt = tandemq("store", "rebuild", store, "--json")
    assert rebuilt.returncode == 1
    [damage] = json.loads(rebuilt.stdout)["damages"]
    assert f"{first} at offset {target['physicalOffset']}" in damage


def test_verify_sees_a_tail_cut_off(store: Path) -> None:
    """The last log file lost its end: exit 1, with its name and size; the rest is shown by dump."""
    whole = dumped(store)
    last = segments(store)[-1]
    kept = whole[-1]["physicalOffset"] % SEGMENT - 5
    with last.open("r+b") as file:
        file.truncate(kept)
    done = tandemq("store", "verify", store)
    assert done.returncode == 1
    assert f"commitlog/{last.name}: it has {kept} bytes instead of {SEGMENT}" in done.stdout
    assert dumped(store, whole=False)[:10] == whole[:10]


def test_verify_misses_a_queue_file_and_rebuild_brings_it_back(store: Path) -> None:
    """Exit 1 and the queue's name; after a rebuild every queue file is again the byte that upstream wrote."""
    before = {path: data for path, data in files(store).items() if path.parts[0] == "consumequeue" and any(data)}
    shutil.rmtree(store / "consumequeue" / "plain" / "0")
    done = tandemq("store", "verify", store, "--json")
    assert done.returncode == 1
    assert [p["where"] for p in json.loads(done.stdout)["problems"]] == ["consumequeue/plain/0"]
    done = tandemq("store", "rebuild", store, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["queues"] == len({path.parent for path in before})
    after = {path: data for path, data in files(store).items() if path.parts[0] == "consumequeue" and any(data)}
    assert after == before
    assert tandemq("store", "verify", store).returncode == 0


@pytest.mark.slow
def test_a_log_file_missing_in_the_middle(store: Path) -> None:
    """Tools name the hole and go on behind it; a broker refuses to write there."""
    whole = dumped(store)
    middle = segments(store)[1]
    start = int(middle.name)
    middle.unlink()
    before = files(store)
    done = tandemq("store", "verify", store, "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    hole = f"it is missing: the log has a hole in [{start}, {start + SEGMENT})"
    assert report["problems"] == [{"where": f"commitlog/{middle.name}", "what": hole}]
    kept = [m for m in whole if not start <= m["physicalOffset"] < start + SEGMENT]
    assert report["records"] == len(kept) < len(whole)
    assert dumped(store, whole=False) == kept
    assert hole in tandemq("store", "dump", store, "--limit", "0").stderr
    queue = [m for m in kept if (m["topic"], m["queueId"]) == ("plain", 0)]
    assert dumped(store, "--topic", "plain", "--queue", "0", whole=False) == queue
    assert files(store) == before
    with pytest.raises(CorruptLog, match=rf"{middle.name} is missing"):
        MessageStore.open(store, discover_config(FileDisk(), store))


def test_dump_says_where_an_unclean_log_breaks_off(store: Path) -> None:
    """A log file in the middle lost its end and no checkpoint tells how far the log went: the rest of that file is
    missing, the files behind it are shown, stderr names file and offset, exit 1."""
    whole = dumped(store)
    middle = segments(store)[1]
    start = int(middle.name)
    lost = [m for m in whole if start + 1000 < m["physicalOffset"] + 4 < start + SEGMENT]
    with middle.open("r+b") as file:
        file.truncate(lost[0]["physicalOffset"] - start + 50)
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    before = files(store)
    done = tandemq("store", "dump", store, "--json")
    assert done.returncode == 1
    assert [json.loads(line) for line in done.stdout.splitlines()] == [m for m in whole if m not in lost]
    said = " ".join(done.stderr.split())
    assert f"{middle}: no whole record at offset {lost[0]['physicalOffset']}, but there are some after it" in said
    assert "store verify" in said
    assert files(store) == before


@pytest.mark.slow
def test_rebuild_names_topics_that_were_deleted(unpacked: Path, tmp_path: Path) -> None:
    """Their queues come back, as the log has their messages; config/topics.json no longer knows them."""
    store = Path(shutil.copytree(unpacked / "5.3.3" / "master-clean", tmp_path / "store"))
    path = store / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["plain"]
    path.write_text(json.dumps(table))
    done = tandemq("store", "rebuild", store, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["unknownTopics"] == ["plain"]
    assert "cleanUnusedTopic" in tandemq("store", "rebuild", store).stderr
    assert (store / "consumequeue" / "plain").is_dir()


@pytest.mark.slow
def test_no_store_there(tmp_path: Path) -> None:
    """One sentence on stderr that says what to give."""
    for command in ("verify", "dump", "rebuild"):
        done = tandemq("store", command, tmp_path)
        assert done.returncode == 1
        assert "holds no store" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_store_in_use_is_not_rebuilt(store: Path) -> None:
    """The lock says who has it; looking at it is allowed all the same."""
    opened = MessageStore.open(store, discover_config(FileDisk(), store))
    try:
        done = tandemq("store", "rebuild", store)
        assert done.returncode == 1
        assert "locked" in done.stderr
        assert tandemq("store", "verify", store).returncode == 0
    finally:
        opened.close()
