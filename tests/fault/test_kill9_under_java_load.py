"""kill -9 of a broker while upstream's Java client produces: nothing it was told is stored is missing afterwards."""

import subprocess
from pathlib import Path

import pytest
from tests.peers import programs, servers, wire
from tests.peers.tools import Missing

from tandemq.testing.waiting import wait_until

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(180)]

KILLS = 2
SECONDS = 12


def _lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()]


def test_acknowledged_messages_survive_kill_9(tmp_path: Path) -> None:
    """With SYNC_FLUSH every SEND_OK is on disk: each acknowledged key is read back at the place it was promised."""
    try:
        produce, environment = programs.java("4.9.7", "Produce")
    except Missing as reason:
        pytest.skip(str(reason))
    acked, read = tmp_path / "acked", tmp_path / "read"
    with servers.ours(tmp_path / "servers", {"flushDiskType": "SYNC_FLUSH"}) as up:
        wire.create_topic(up.broker, "kill", 4)
        servers.await_route(up, "kill")
        options = [f"acked={acked}", "keys=true", "timeout=2000", "pause=50", "warm=0", f"seconds={SECONDS}"]
        load = subprocess.Popen(
            [*produce, up.namesrv, "kill", "1000000", "1024", "16", "sync", *options],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(KILLS):
            stored = _stored(up)
            wait_until(lambda before=stored: _stored(up) >= before + 500, up.said, seconds=60)  # it is busy again
            up.daemons["broker"].kill()
            up.daemons["broker"].start()
        said, _ = load.communicate(timeout=120)
        servers.await_route(up, "kill")
        pull, _ = programs.java("4.9.7", "Pull")
        subprocess.run(
            [*pull, up.namesrv, "kill", f"list={read}"], env=environment, check=True, stdout=subprocess.DEVNULL
        )
    promised = {(queue, offset): key for key, status, _, queue, offset in _lines(acked) if status == "SEND_OK"}
    found = {(queue, offset): key for queue, offset, key, *_ in _lines(read)}
    assert len(promised) > 1000, said
    assert "Exception" in said, f"no send failed: the broker was not killed under load: {said}"
    assert {place: key for place, key in promised.items() if found.get(place) != key} == {}


def _stored(up: servers.Servers) -> int:
    """Messages in the topic, by the sum of its queues' ends; 0 while the broker is not there."""
    total = 0
    for queue_id in range(4):
        try:
            answer, _ = wire.ask(up.broker, 30, {"topic": "kill", "queueId": str(queue_id)})
        except OSError:
            return 0
        total += int(answer["extFields"]["offset"])
    return total
