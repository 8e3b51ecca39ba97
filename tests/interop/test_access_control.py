"""A broker that asks for signatures, and a client we did not write that signs: PyPI's rocketmq 0.4.4 (C++)."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.peers import programs, servers, tools

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(300)]

ACCOUNTS = """
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - open=PUB|SUB
      - readOnly=SUB
  - accessKey: brokerKey
    secretKey: 87654321
    admin: true
"""
SEND = """
import sys
from rocketmq.client import Message, Producer

namesrv, topic, access_key, secret_key = sys.argv[1:]
producer = Producer("GID_acl")
producer.set_namesrv_addr(namesrv)
if access_key:
    producer.set_session_credentials(access_key, secret_key, "ALIYUN")
producer.start()
message = Message(topic)
message.set_body("hello")
try:
    print("status", producer.send_sync(message).status)
except Exception as error:
    print("refused", error)
producer.shutdown()
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Servers]:
    directory: Path = tmp_path_factory.mktemp("acl")
    (directory / "plain_acl.yml").write_text(ACCOUNTS)
    properties = {
        "aclEnable": "true",
        "aclFile": str(directory / "plain_acl.yml"),
        "accessKey": "brokerKey",
        "secretKey": "87654321",
    }
    with servers.ours(directory, properties) as started:
        yield started


@pytest.mark.parametrize(
    ("topic", "access_key", "secret_key", "outcome"),
    [
        ("open", "RocketMQ", "12345678", "status 0"),
        ("open", "RocketMQ", "wrong secret", "refused"),
        ("open", "", "", "refused"),
        ("open", "nobody", "12345678", "refused"),
        ("readOnly", "RocketMQ", "12345678", "refused"),
        ("readOnly", "brokerKey", "87654321", "status 0"),
    ],
)
def test_send(running: servers.Servers, topic: str, access_key: str, secret_key: str, outcome: str) -> None:
    """Signed with the right key and allowed: stored. Anything else: refused, whatever the client's own checks say."""
    try:
        (python, _), environment = programs.cpp()
    except tools.Missing as reason:
        pytest.skip(str(reason))
    done = subprocess.run(
        [python, "-c", SEND, running.namesrv, topic, access_key, secret_key],
        env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert outcome in done.stdout, f"{done.stdout}\n{done.stderr[-2000:]}\n{running.said()}"
