"""The gate: who made a request, with which proof, and what a handler declares."""

from collections.abc import Callable

import pytest

from tandemq.codec.acl import Credentials, SessionCheck, SessionSigner, sign
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.remoting.access.control import AccessControl
from tandemq.remoting.access.needs import GET, PUB, SUB, TOPIC, Need, Rule, needs, on_cluster, on_topic, rule_of
from tandemq.remoting.access.plain import PlainAccounts
from tandemq.remoting.access.users import UserTable

FILE = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: ordinary, secretKey: secret-1, defaultTopicPerm: PUB|SUB}
- {accessKey: operator, secretKey: secret-2, admin: true, whiteRemoteAddress: 192.168.1.*}
"""
PLAIN = PlainAccounts.from_text(FILE, "plain_acl.yml")
USERS = UserTable(lambda: 1)
USERS.create("user", "secret-3")
USERS.create("gone", "secret-4", status="disable")
CHALLENGE = bytes(16)


def rule(*parts: Callable[..., object], is_open: bool = False) -> Rule:
    @needs(*parts, is_open=is_open)  # type: ignore[arg-type]
    def handler() -> None: ...

    found = rule_of(handler)
    assert found is not None
    return found


ANY, READ, ADMIN = rule(), rule(on_topic("topic", SUB)), rule(on_cluster(GET))


def control(classic: bool = True) -> AccessControl:
    return AccessControl(
        [USERS.account, PLAIN.by_key.get],
        trusts=PLAIN.trusts,
        cluster="C",
        classic_signatures=classic,
        now=lambda: 0.0,
    )


def signed(key: str, secret: str, code: int = 11, **ext: str) -> Command:
    return Command(code, sign(ext, b"", key, secret))


def session_signed(key: str, secret: str, code: int = 11, **ext: str) -> Command:
    command = Command(code, ext)
    SessionSigner(Credentials(key, secret), CHALLENGE, 0, lambda: 0).sign(command)
    return command


def refusal(command: Command, declared: Rule | None, host: str = "1.2.3.4", *, classic: bool = True) -> str:
    with pytest.raises(ReplyError) as caught:
        control(classic).check(host, command, declared, SessionCheck(CHALLENGE, 0, 0))
    assert caught.value.code == 16
    return caught.value.remark


REFUSED = {
    "no access key": (Command(11), ANY, "no AccessKey"),
    "unknown access key": (signed("nobody", "x"), ANY, "no account"),
    "no signature": (Command(11, {"AccessKey": "ordinary"}), ANY, "no Signature"),
    "wrong secret": (signed("ordinary", "wrong"), ANY, "does not fit"),
    "disabled user": (signed("gone", "secret-4"), ANY, "disabled"),
    "user without policies": (signed("user", "secret-3", topic="T"), READ, "no Sub permission for topic 'T'"),
    "for administrators": (signed("ordinary", "secret-1"), ADMIN, "no Get permission for the cluster"),
    "nothing is declared": (signed("ordinary", "secret-1"), None, "nobody may use it"),
    "nothing is declared, for administrators too": (signed("operator", "secret-2"), None, "nobody may use it"),
    "a request of our own with RocketMQ's signature": (
        signed("operator", "secret-2", code=32102), ADMIN, "needs a Signature256",
    ),
    "wrong secret of a session": (session_signed("ordinary", "wrong"), ANY, "Signature256 of 'ordinary' does not fit"),
    "internal topics": (signed("ordinary", "secret-1", topic="SCHEDULE_TOPIC_XXXX"), READ, "the cluster"),
    "internal by prefix": (signed("ordinary", "secret-1", topic="rmq_sys_wheel_timer"), READ, "the cluster"),
    "answers to requests": (signed("ordinary", "secret-1", topic="C_REPLY_TOPIC"), READ, "the cluster"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "declared", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(command: Command, declared: Rule | None, reason: str) -> None:
    assert reason in refusal(command, declared)


ALLOWED = {
    "an ordinary account reads": (signed("ordinary", "secret-1", topic="T"), READ, "ordinary", "1.2.3.4"),
    "with the signature of a session": (session_signed("ordinary", "secret-1", topic="T"), READ, "ordinary", "1.2.3.4"),
    "an operator": (signed("operator", "secret-2"), ADMIN, "operator", "1.2.3.4"),
    "an operator's own request": (session_signed("operator", "secret-2", code=32102), ADMIN, "operator", "1.2.3.4"),
    "an operator reads internal topics": (
        signed("operator", "secret-2", topic="SCHEDULE_TOPIC_XXXX"), READ, "operator", "1.2.3.4",
    ),
    "a user of the table": (signed("user", "secret-3"), ANY, "user", "1.2.3.4"),
    "an account from its own address": (Command(25, {"AccessKey": "operator"}), ADMIN, "operator", "192.168.1.9"),
    "anybody from a trusted address": (Command(25), ADMIN, "whitelisted:10.10.103.7", "10.10.103.7"),
}  # fmt: skip


@pytest.mark.parametrize(("command", "declared", "name", "host"), ALLOWED.values(), ids=ALLOWED.keys())
def test_allowed(command: Command, declared: Rule, name: str, host: str) -> None:
    control().check(host, command, declared, SessionCheck(CHALLENGE, 0, 0))
    assert command.caller.name == name


def test_a_request_that_needs_no_account_is_open_to_all() -> None:
    command = Command(32121)
    control().check("1.2.3.4", command, rule(is_open=True))
    assert command.caller is None


def test_a_session_signature_needs_a_session() -> None:
    with pytest.raises(ReplyError, match="without a challenge"):
        control().check("1.2.3.4", session_signed("ordinary", "secret-1"), ANY, None)


def test_rocketmqs_signatures_can_be_turned_off() -> None:
    assert "needs a Signature256" in refusal(signed("ordinary", "secret-1"), ANY, classic=False)
    control(classic=False).check("1.2.3.4", session_signed("ordinary", "secret-1"), ANY, SessionCheck(CHALLENGE, 0, 0))


def test_requests_made_for_an_internal_topic_need_only_its_permission() -> None:
    command = signed("ordinary", "secret-1")
    control().check("1.2.3.4", command, ANY)
    assert command.caller.may(Need(TOPIC, "C_REPLY_TOPIC", PUB, made_for=True))
    assert not command.caller.may(Need(TOPIC, "C_REPLY_TOPIC", PUB))
