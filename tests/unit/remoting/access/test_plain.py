"""plain_acl.yml as RocketMQ 4.x ships it."""

import os
from pathlib import Path

import pytest

from tandemq.errors import ConfigError
from tandemq.model.topic import TRACE_TOPIC
from tandemq.remoting.access.needs import CLUSTER, CREATE, GET, GROUP, PUB, SUB, TOPIC, UPDATE, Need
from tandemq.remoting.access.plain import FILE_SIZE_MAX, PlainAccounts, PlainAclFile

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
ACCOUNTS = PlainAccounts.from_text(FILE, "plain_acl.yml")
ORDINARY, ADMIN = ACCOUNTS.by_key["RocketMQ"], ACCOUNTS.by_key["rocketmq2"]


@pytest.mark.parametrize(
    ("kind", "name", "actions", "allowed"),
    [
        (TOPIC, "topicB", PUB, True),
        (TOPIC, "topicB", SUB, True),
        (TOPIC, "topicC", SUB, True),
        (TOPIC, "topicC", PUB, False),
        (TOPIC, "topicC", GET, True),  # who may use it may look at it
        (TOPIC, "topicC", PUB | GET, True),
        (TOPIC, "topicA", SUB | GET, False),
        (TOPIC, "other", GET, False),
        (TOPIC, "topicB", CREATE | UPDATE, False),
        (GROUP, "groupB", SUB, True),
        (GROUP, "groupX", SUB, True),
        (GROUP, "groupA", SUB | GET, False),
        (GROUP, "groupB", UPDATE, False),
        (CLUSTER, "", GET, False),
        (CLUSTER, "", UPDATE, False),
    ],
)
def test_permissions(kind: str, name: str, actions: int, allowed: bool) -> None:
    assert ORDINARY.may(Need(kind, name, actions), "1.2.3.4") is allowed
    assert ADMIN.may(Need(kind, name, actions), "1.2.3.4")


def test_traces_are_read_only_by_those_whom_a_permission_names() -> None:
    """They tell about the messages of all accounts; whoever may publish anything may add to them."""
    text = FILE.replace("defaultTopicPerm: DENY", "defaultTopicPerm: PUB|SUB")
    account = PlainAccounts.from_text(text, "acl.yml").by_key["RocketMQ"]
    assert account.may(Need(TOPIC, TRACE_TOPIC, PUB), "1.2.3.4")
    assert not account.may(Need(TOPIC, TRACE_TOPIC, SUB | GET), "1.2.3.4")
    named = PlainAccounts.from_text(text.replace("topicC=SUB", f"{TRACE_TOPIC}=SUB"), "acl.yml").by_key["RocketMQ"]
    assert named.may(Need(TOPIC, TRACE_TOPIC, SUB), "1.2.3.4")


def test_white_addresses() -> None:
    assert ACCOUNTS.trusts("10.10.103.7")
    assert not ACCOUNTS.trusts("10.10.104.7")
    assert ADMIN.trusts("192.168.1.9")
    assert not ORDINARY.trusts("192.168.1.9")


def test_secrets_are_not_shown() -> None:
    assert "12345678" not in repr(ACCOUNTS)


def test_a_changed_file_is_read_again_and_a_broken_one_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE)
    file = PlainAclFile(path)
    assert not file.reload()
    path.write_text(FILE.replace("topicC=SUB", "topicC=PUB|SUB"))
    assert file.reload()
    assert file.accounts.by_key["RocketMQ"].may(Need(TOPIC, "topicC", PUB), "1.2.3.4")
    for broken in ("accounts: [", "x" * (FILE_SIZE_MAX + 1)):
        path.write_text(broken)
        assert not file.reload()
        assert "RocketMQ" in file.accounts.by_key
    path.unlink()
    assert not file.reload()
    path.write_text(FILE)
    os.utime(path, ns=(1, 1))
    assert file.reload()


def test_a_file_that_is_not_there_is_a_mistake_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="aclFile"):
        PlainAclFile(tmp_path / "missing.yml")


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
    "admin is no boolean": ("accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: 1\n", "admin"),
    "twice": ("accounts:\n" + "- accessKey: RocketMQ\n  secretKey: 12345678\n" * 2, "twice"),
    "tab": ("accounts:\n\t- accessKey: x\n", r"\\t"),
    "alias": ("accounts: &a\n- *a\n", "aliases"),
    "deep nesting": ("accounts: " + "[" * 1500, "nested too deeply|no valid YAML"),
    "list of texts": ("accounts: [a, b]\n", "account"),
    "key twice": ("accounts:\naccounts:\n", "twice"),
    "no mapping": ("accounts\n", "list `accounts`"),
    "odd indentation": ("accounts:\n  - accessKey: RocketMQ\n     secretKey: 12345678\n", "line 3"),
    "bad address": (
        "globalWhiteRemoteAddresses:\n- 10.x.*\naccounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n", "10.x",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_files_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PlainAccounts.from_text(text, "acl.yml")
