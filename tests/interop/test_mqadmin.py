"""Upstream's mqadmin against our servers: each command prints what an operator expects to see.

The same checks hold for the real broker (TANDEMQ_PEER_BROKERS=1). All commands of a version run in one JVM.
"""

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.peers import programs, servers, wire
from tests.peers.tools import Missing

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC, GROUP = "AdminTopic", "GID_admin"


class Said:
    """What mqadmin printed, by command; `ids` are the offset ids of the ten messages that were there before."""

    def __init__(self, output: str, errors: str, ids: list[str], up: servers.Servers, side: str) -> None:
        parts = re.split(r"^=== (\w+).*$", output, flags=re.MULTILINE)
        self.by_command: dict[str, list[str]] = {}
        for command, text in zip(parts[1::2], parts[2::2], strict=True):
            self.by_command.setdefault(command, []).append(text)
        self.output, self.errors, self.ids, self.broker = output, errors, ids, up.broker
        self.side = side

    def __call__(self, command: str, turn: int = 0) -> str:
        text = self.by_command[command][turn]
        assert "Exception" not in text, f"{command}: {text}\n{self.errors[-2000:]}"
        return text


def _fill(up: servers.Servers) -> list[str]:
    """Ten messages in one queue, five of them consumed by the group; their offset ids."""
    wire.create_topic(up.broker, f"%RETRY%{GROUP}", 1)
    servers.await_route(up, f"%RETRY%{GROUP}")
    ids = []
    for i in range(10):
        fields = {
            "producerGroup": "GID_admin_p",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "1",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "0",
            "properties": f"KEYS\x01order{i}\x02TAGS\x01a\x02",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        answer, _ = wire.ask(up.broker, 10, fields, b"body %d" % i)
        assert answer["code"] == 0, answer
        ids.append(answer["extFields"]["msgId"])
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1", "commitOffset": "5"}
    answer, _ = wire.ask(up.broker, 15, commit)
    assert answer["code"] == 0, answer
    return ids


def _mqadmin(version: str, lines: list[str]) -> tuple[str, str]:
    command, environment = programs.java(version, "Admin")
    done = subprocess.run([*command, *lines], env=environment, capture_output=True, text=True, timeout=200, check=False)
    return done.stdout, done.stderr


def _run(version: str, side: str, directory: Path) -> Said:
    with servers.start(side, directory) as up:
        n, b = f"-n {up.namesrv}", f"-b {up.broker}"
        first, first_errors = _mqadmin(
            version,
            [
                f"updateTopic {n} {b} -t {TOPIC} -r 4 -w 4",
                f"updateSubGroup {n} {b} -g {GROUP} -r 7",
            ],
        )
        servers.await_route(up, TOPIC)
        ids = _fill(up)
        then, errors = _mqadmin(
            version,
            [
                f"clusterList {n}",
                f"topicList {n}",
                f"topicRoute {n} -t {TOPIC}",
                f"topicStatus {n} -t {TOPIC}",
                f"brokerStatus {n} {b}",
                f"consumerProgress {n} -g {GROUP}",
                f"brokerConsumeStats {n} {b} -t 3000",
                f"queryMsgById {n} -t {TOPIC} -i {ids[7]}" if version >= "5" else f"queryMsgById {n} -i {ids[7]}",
                f"queryMsgByKey {n} -t {TOPIC} -k order3",
                f"resetOffsetByTime {n} -g {GROUP} -t {TOPIC} -s 0",
                f"consumerProgress {n} -g {GROUP}",
                f"sendMessage {n} -t {TOPIC} -p hello -k greeting -c tag",
                f"consumeMessage {n} -t {TOPIC} -b broker-a -i 1 -o 0 -c 3 -g GID_reader",
                f"queryMsgByOffset {n} -t {TOPIC} -b broker-a -i 1 -o 3",
                f"queryCq {n} {b} -t {TOPIC} -q 1 -i 0 -c 3 -g {GROUP}",
                f"topicClusterList {n} -t {TOPIC}",
                f"statsAll {n} -t {TOPIC}",
                f"getBrokerConfig {n} {b}",
                f"getNamesrvConfig {n}",
                f"updateOrderConf {n} -t {TOPIC} -v broker-a:4 -m put",
                f"updateOrderConf {n} -t {TOPIC} -m get",
                f"wipeWritePerm {n} -b broker-a",
                f"addWritePerm {n} -b broker-a",
                f"updateKvConfig {n} -s NS1 -k k1 -v v1",
                f"updateTopicPerm {n} {b} -t {TOPIC} -p 4",
                f"deleteSubGroup {n} {b} -g {GROUP}",
                f"deleteTopic {n} -c DefaultCluster -t {TOPIC}",
            ],
        )
        return Said(first + then, first_errors + errors, ids, up, side)


# Both generations of the tool against ours; a real broker only with the tool of its own release.
PAIRS = [
    (version, side)
    for side in servers.sides()
    for version in programs.JAVA_VERSIONS
    if side in ("ours", f"rocketmq-{version}")
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Future[Said]]]:
    """Both generations at once, each with servers of its own."""
    with ThreadPoolExecutor(len(programs.JAVA_VERSIONS)) as pool:
        yield {
            (version, side): pool.submit(_run, version, side, tmp_path_factory.mktemp("mqadmin"))
            for version, side in PAIRS
        }


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def said(request: pytest.FixtureRequest, runs: dict[tuple[str, str], Future[Said]]) -> Said:
    try:
        return runs[request.param].result()
    except Missing as reason:
        pytest.skip(str(reason))


def test_update_topic(said: Said) -> None:
    """It confirms with the topic's new configuration."""
    text = said("updateTopic")
    assert "success" in text
    assert f"topicName={TOPIC}" in text
    assert "readQueueNums=4" in text


def test_update_sub_group(said: Said) -> None:
    """It confirms with the group's new configuration, the retry queues as asked."""
    text = said("updateSubGroup")
    assert "success" in text
    assert re.search(r'groupName["=: ]+' + GROUP, text)


def test_cluster_list(said: Said) -> None:
    """One line for the one broker: cluster, name, id 0, address, a version."""
    assert re.search(rf"DefaultCluster\s+broker-a\s+0\s+{re.escape(said.broker)}\s+V\d", said("clusterList"))


def test_topic_list(said: Said) -> None:
    """Our topic is among them, and the retry topic of the group."""
    names = said("topicList").split()
    assert {TOPIC, f"%RETRY%{GROUP}", "TBW102"} <= set(names)


def test_topic_route(said: Said) -> None:
    """The route as JSON: the broker's address and four queues each way."""
    text = re.sub(r"\s", "", said("topicRoute"))
    assert said.broker in text
    assert '"readQueueNums":4' in text
    assert '"writeQueueNums":4' in text


def test_topic_status(said: Said) -> None:
    """Four queues; the one with messages reaches from 0 to 10 and has an update time."""
    lines = [line.split() for line in said("topicStatus").splitlines() if line.startswith("broker-a")]
    assert [line[1] for line in lines] == ["0", "1", "2", "3"]
    assert lines[1][2:4] == ["0", "10"]
    assert len(lines[1]) >= 5, lines[1]
    assert lines[0][2:4] == ["0", "0"]


def test_broker_status(said: Said) -> None:
    """The runtime table has the rows dashboards and operators look for."""
    rows = dict(line.split(":", 1) for line in said("brokerStatus").splitlines() if ":" in line)
    table = {key.strip(): value.strip() for key, value in rows.items()}
    wanted = {
        "bootTimestamp",
        "brokerVersion",
        "brokerVersionDesc",
        "commitLogDirCapacity",
        "commitLogDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
        "consumeQueueDiskRatio",
        "dispatchMaxBuffer",
        "earliestMessageTimeStamp",
        "getFoundTps",
        "getMessageEntireTimeMax",
        "getMissTps",
        "getTotalTps",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgPutTotalYesterdayMorning",
        "pageCacheLockTimeMills",
        "pullThreadPoolQueueCapacity",
        "pullThreadPoolQueueSize",
        "putMessageAverageSize",
        "putMessageEntireTimeMax",
        "putMessageSizeTotal",
        "putMessageTimesTotal",
        "putTps",
        "queryThreadPoolQueueCapacity",
        "remainHowManyDataToFlush",
        "runtime",
        "sendThreadPoolQueueCapacity",
        "sendThreadPoolQueueSize",
        "startAcceptSendRequestTimeStamp",
    }
    assert wanted - set(table) == set()
    assert int(table["commitLogMaxOffset"]) > 1000
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1  # 0.0000 on a large and empty disk


def _progress_of_queue_1(text: str) -> list[str]:
    lines = [line.split() for line in text.splitlines() if line.startswith(TOPIC)]
    return next(line for line in lines if line[1:3] == ["broker-a", "1"])


def test_consumer_progress(said: Said) -> None:
    """Half of the messages are consumed: broker offset 10, consumer offset 5, difference 5."""
    line = next(
        line.split() for line in said("consumerProgress").splitlines() if line.startswith(TOPIC) and " 10 " in line
    )
    assert line[1:3] == ["broker-a", "1"]
    assert line[3:5] == ["10", "5"]
    assert "5" in line[5:]


def test_query_by_id(said: Said) -> None:
    """The message behind an offset id, with its place and properties."""
    text = said("queryMsgById")
    assert re.search(r"OffsetID:\s+" + said.ids[7], text)
    assert re.search(r"Queue Offset:\s+7\b", text)
    assert re.search(r"Message Keys?:?\s*(Size:\s+)?\[?order7|KEYS=order7", text)


def test_query_by_key(said: Said) -> None:
    """One hit: its unique id, queue and offset."""
    lines = [line.split() for line in said("queryMsgByKey").splitlines() if line[:1].isalnum()]
    assert len(lines) == 1, lines
    assert lines[0][1:3] == ["1", "3"]


def test_reset_offset_by_time(said: Said) -> None:
    """Back to the beginning of time: the group's offset is 0 afterwards."""
    if said.side == "rocketmq-4.9.7":
        pytest.skip("the real 4.9.7 resets only groups with a consumer online")
    text = said("resetOffsetByTime")
    assert GROUP in text or "rollback consumer offset" in text
    line = next(
        line.split() for line in said("consumerProgress", 1).splitlines() if line.startswith(TOPIC) and " 10 " in line
    )
    assert line[3:5] == ["10", "0"]


OTHERS = {
    "sendMessage": r"broker-a\s+\d\s+SEND_OK",
    "consumeMessage": r"Consume ok",
    "queryMsgByOffset": r"Queue Offset:\s+3\b",
    "queryCq": r"physicOffset=0",
    "topicClusterList": r"DefaultCluster",
    "statsAll": rf"{TOPIC}\s+{GROUP}",
    "brokerConsumeStats": rf"{TOPIC}\s+{GROUP}\s+broker-a\s+1\s+10",
    "getBrokerConfig": r"brokerName\s+=\s+broker-a",
    "getNamesrvConfig": r"orderMessageEnable\s+=\s+false",
    "wipeWritePerm": r"OK, \d+",
    "addWritePerm": r"OK, \d+",
    "updateKvConfig": r"success",
    "updateTopicPerm": r"update topic perm from 6 to 4",
    "deleteSubGroup": r"success",
    "deleteTopic": r"from NameServer success",
}


@pytest.mark.parametrize("command", OTHERS)
def test_other_commands(said: Said, command: str) -> None:
    """What else operators reach for answers as the real broker does."""
    assert re.search(OTHERS[command], said(command)), said(command)


def test_order_config(said: Said) -> None:
    """What was put is what is got."""
    assert "orderConf=[broker-a:4]" in said("updateOrderConf", 1)
