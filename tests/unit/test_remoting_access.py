"""Who may do what: plain_acl.yml as RocketMQ 4.x ships it."""

import pytest

from tandemq.codec.acl import sign
from tandemq.codec.command import Command
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, encode_heartbeat
from tandemq.errors import ConfigError, ReplyError
from tandemq.remoting.access import AccessControl, address_matcher

FILE = """
# as shipped
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.1-20

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB

  - accessKey: rocketmq2
    secretKey: "12345678"
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
ACL = AccessControl.from_text(FILE, "plain_acl.yml")


def signed(
    code: int, ext: dict[str, str], body: bytes = b"", key: str = "RocketMQ", secret: str = "12345678"
) -> Command:
    return Command(code, sign(ext, body, key, secret), body)


def refusal(command: Command, host: str = "1.2.3.4") -> str:
    with pytest.raises(ReplyError) as caught:
        ACL.check(host, command)
    assert caught.value.code == 16
    return caught.value.remark


def pull(topic: str, group: str) -> Command:
    return signed(11, {"topic": topic, "consumerGroup": group, "queueId": "0"})


def heartbeat(group: str, topic: str) -> bytes:
    consumer = ConsumerGroupInfo(group=group, subscriptions=(Subscription(topic=topic),))
    return encode_heartbeat(Heartbeat(client_id="c", consumers=(consumer,)))


ALLOWED = {
    "send to a topic with PUB": signed(310, {"b": "topicB"}),
    "send with long names": signed(10, {"topic": "topicB"}),
    "pull with SUB on topic and group": pull("topicC", "groupB"),
    "pull with the default group permission": pull("topicC", "groupX"),
    "pull of a retry topic, by its group": pull("%RETRY%groupB", "groupB"),
    "heartbeat": signed(34, {}, heartbeat("groupB", "topicC")),
    "send back": signed(36, {"group": "groupB", "offset": "0"}),
    "admin does everything": signed(17, {"topic": "x"}, key="rocketmq2"),
    "routes": signed(105, {"topic": "x"}),
}


@pytest.mark.parametrize("command", ALLOWED.values(), ids=ALLOWED.keys())
def test_allowed(command: Command) -> None:
    ACL.check("1.2.3.4", command)


REFUSED = {
    "no access key": (Command(310, {"b": "topicB"}), "no AccessKey"),
    "unknown access key": (signed(310, {"b": "topicB"}, key="nobody"), "no account"),
    "no signature": (Command(310, {"b": "topicB", "AccessKey": "RocketMQ"}), "no Signature"),
    "wrong secret": (signed(310, {"b": "topicB"}, secret="wrong"), "does not fit"),
    "send to a topic with SUB only": (signed(310, {"b": "topicC"}), "no PUB permission for topic 'topicC'"),
    "denied topic": (signed(310, {"b": "topicA"}), "no PUB permission for topic 'topicA'"),
    "topic without entry": (signed(310, {"b": "other"}), "no PUB permission"),
    "denied group": (pull("topicC", "groupA"), "group 'groupA'"),
    "retry topic of a denied group": (pull("%RETRY%groupA", "groupB"), "group 'groupA'"),
    "heartbeat for a denied group": (signed(34, {}, heartbeat("groupA", "topicC")), "group 'groupA'"),
    "admin request": (signed(25, {}, b"a=b"), "no admin account"),
    "broker request": (signed(1001, {}), "no admin account"),
    "promotion of a broker": (signed(32102, {}), "no admin account"),
}


@pytest.mark.parametrize(("command", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(command: Command, reason: str) -> None:
    assert reason in refusal(command)


def test_white_addresses() -> None:
    """Global ones need nothing; an account's own need its access key but no signature."""
    ACL.check("10.10.103.7", Command(25))
    ACL.check("192.168.1.9", Command(25, {"AccessKey": "rocketmq2"}))
    assert "no AccessKey" in refusal(Command(25), "192.168.1.9")
    assert "no Signature" in refusal(Command(25, {"AccessKey": "rocketmq2"}), "192.168.2.9")


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.0.0.*", ["10.0.0.1", "10.0.0.255"], ["10.0.1.1", "::1"]),
        ("10.0.*", ["10.0.9.1"], ["10.1.0.0"]),
        ("10.0.1-3.*", ["10.0.2.9"], ["10.0.4.9"]),
        ("10.0.0.{1,2}", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]),
        ("10.0.0.1,10.0.0.5", ["10.0.0.5"], ["10.0.0.2"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("::1", ["::1"], ["::2"]),
    ],
)
def test_address_patterns(pattern: str, inside: list[str], outside: list[str]) -> None:
    fits = address_matcher([pattern])
    assert all(fits(host) for host in inside)
    assert not any(fits(host) for host in outside)


def test_secrets_are_not_shown() -> None:
    assert "12345678" not in repr(list(ACL._accounts.values()))


BROKEN = {
    "accounts missing": ("globalWhiteRemoteAddresses:\n  - 1.2.3.4\n", "accounts"),
    "short secret": ("accounts:\n- accessKey: RocketMQ\n  secretKey: 123\n", "secretKey"),
    "unknown field": ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  rights: all\n", "rights"),
    "unknown permission": (
        "accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  topicPerms:\n  - a=READ\n", "READ",
    ),
    "permission without name": (
        "accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  topicPerms:\n  - PUB\n", "name=PUB",
    ),
    "admin is no boolean": ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: yes\n", "admin"),
    "twice": ("accounts:\n" + "- accessKey: RocketMQ\n  secretKey: 12345678\n" * 2, "twice"),
    "tab": ("accounts:\n\t- accessKey: x\n", "tab"),
    "anchor": ("accounts: &a\n", "not supported"),
    "flow list": ("accounts: [a, b]\n", "not supported"),
    "key twice": ("accounts:\naccounts:\n", "twice"),
    "no colon": ("accounts\n", "key: value"),
    "odd indentation": ("accounts:\n  - accessKey: RocketMQ\n     secretKey: 12345678\n", "indentation"),
    "bad address": (
        "globalWhiteRemoteAddresses:\n- 10.x.*\naccounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n", "10.x",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AccessControl.from_text(text, "acl.yml")
