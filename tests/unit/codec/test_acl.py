"""Signatures: RocketMQ's as real clients compute them, and those between our own parts."""

import pytest

from tandemq.codec.acl import (
    SIGN_AGE_MAX_MS,
    SIGN_NONCE,
    SIGN_TIME,
    SIGNATURE_256,
    ClassicSigner,
    Credentials,
    SessionCheck,
    SessionSigner,
    SigningKey,
    session_signer,
    sign,
    without_signature,
)
from tandemq.codec.command import Command
from tandemq.errors import MalformedBody

KEY = SigningKey("SK1")
CREDENTIALS = Credentials("AK1", "SK1")
CHALLENGE = b"challenge".ljust(16, b".")


def test_reference_vectors() -> None:
    assert KEY.classic({"AccessKey": "AK1", "queueId": "0", "topic": "T"}, b"") == b"CICusSIWGGrEcx5g+C2fRsM3OwM="
    captured = {"AccessKey": "", "OnsChannel": "ALIYUN", "topic": "TopicA"}
    assert SigningKey("").classic(captured, b"") == b"Sf55A+YZN21izFtJZ+36oINzoLw="


def test_signed_requests_are_recognised_and_changes_are_not() -> None:
    ext = sign({"topic": "T", "queueId": "0"}, b"body", "AK1", "SK1", "token")
    assert KEY.has_signed(ext, b"body")
    assert KEY.has_signed(ext, memoryview(b"body"))
    assert not KEY.has_signed(ext, b"Body")
    assert not SigningKey("SK2").has_signed(ext, b"body")
    assert not KEY.has_signed({**ext, "queueId": "1"}, b"body")
    assert not KEY.has_signed({name: ext[name] for name in ext if name != "Signature"}, b"body")
    assert not KEY.has_signed({**ext, "Signature": "ünlesbar"}, b"body")


def test_fields_some_clients_leave_out() -> None:
    """Go sends the security token unsigned; Java up to 4.9.3 does so with the unique-key mark."""
    ext = {"AccessKey": "AK1", "topic": "T"}
    for name in ("SecurityToken", "_UNIQUE_KEY_QUERY"):
        assert KEY.has_signed({**ext, name: "x", "Signature": KEY.classic(ext, b"").decode()}, b"")


def test_a_classic_signer_adds_what_rocketmq_expects() -> None:
    command = Command(10, {"topic": "T"}, b"body")
    ClassicSigner(Credentials("AK1", "SK1", "token")).sign(command)
    assert command.ext == sign({"topic": "T"}, b"body", "AK1", "SK1", "token")


def session(now: list[int]) -> tuple[SessionSigner, SessionCheck]:
    """Both sides of a connection whose clocks have nothing in common but that they run."""
    return (
        SessionSigner(CREDENTIALS, CHALLENGE, 1_700_000_000_000, lambda: now[0]),
        SessionCheck(CHALLENGE, 1_700_000_000_000, 5_000_000 + now[0]),
    )


def signed(signer: SessionSigner, code: int = 310) -> Command:
    command = Command(code, {"b": "T", "e": "0"}, b"body", opaque=7)
    signer.sign(command)
    return command


def test_a_signed_request_passes_once() -> None:
    now = [0]
    signer, check = session(now)
    first, second = signed(signer), signed(signer)
    assert check.problem(first, KEY, 5_000_000) is None
    assert "used before" in (check.problem(first, KEY, 5_000_000) or "")
    assert check.problem(second, KEY, 5_000_000) is None
    assert "used before" in (check.problem(first, KEY, 5_000_000) or "")


def test_requests_come_in_the_order_they_were_signed() -> None:
    signer, check = session([0])
    first, second = signed(signer), signed(signer)
    assert check.problem(second, KEY, 5_000_000) is None
    assert "used before" in (check.problem(first, KEY, 5_000_000) or "")


def test_a_signature_is_of_one_connection() -> None:
    signer, _ = session([0])
    other = SessionCheck(b"another".ljust(16, b"."), 1_700_000_000_000, 5_000_000)
    assert "does not fit" in (other.problem(signed(signer), KEY, 5_000_000) or "")


CHANGES = {
    "code": lambda c: setattr(c, "code", 25),
    "opaque": lambda c: setattr(c, "opaque", 8),
    "version": lambda c: setattr(c, "version", 1),
    "flag": lambda c: setattr(c, "flag", 2),
    "body": lambda c: setattr(c, "body", b"Body"),
    "a value": lambda c: c.ext.update(b="U"),
    "a field more": lambda c: c.ext.update(z=""),
    "a field less": lambda c: c.ext.pop("e"),
    "a name": lambda c: c.ext.update(bb=c.ext.pop("b")),
    "text moved from one value to the next": lambda c: c.ext.update(b="", e="T0"),
    "text moved from the last value to the body": lambda c: (c.ext.update(e=""), setattr(c, "body", b"0body")),
    "time": lambda c: c.ext.update({SIGN_TIME: "1700000000001"}),
    "nonce": lambda c: c.ext.update({SIGN_NONCE: "9"}),
    "account": lambda c: c.ext.update(AccessKey="AK2"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_session_signature_covers_everything(change: object) -> None:
    signer, check = session([0])
    command = signed(signer)
    change(command)  # type: ignore[operator]
    assert "does not fit" in (check.problem(command, KEY, 5_000_000) or "")
    assert "does not fit" in (check.problem(signed(signer), SigningKey("SK2"), 5_000_000) or "")


def test_a_request_that_was_held_back_is_refused() -> None:
    now = [0]
    signer, check = session(now)
    in_time, late = signed(signer), signed(signer)
    assert check.problem(in_time, KEY, 5_000_000 + SIGN_AGE_MAX_MS) is None
    assert "ms ago" in (check.problem(late, KEY, 5_000_000 + SIGN_AGE_MAX_MS + 1) or "")
    now[0] = SIGN_AGE_MAX_MS + 1  # the client's clock went on as the server's did
    assert check.problem(signed(signer), KEY, 5_000_000 + SIGN_AGE_MAX_MS + 1) is None


@pytest.mark.parametrize("missing", [SIGN_TIME, SIGN_NONCE])
def test_time_and_nonce_must_be_there(missing: str) -> None:
    _, check = session([0])
    command = Command(310, {"AccessKey": "AK1", SIGN_TIME: "1700000000000", SIGN_NONCE: "1"})
    command.ext.pop(missing)
    command.ext[SIGNATURE_256] = KEY.session(command, CHALLENGE).decode()
    assert "lacks" in (check.problem(command, KEY, 5_000_000) or "")


def test_a_command_that_is_sent_again_is_signed_again() -> None:
    signer, check = session([0])
    command = signed(signer)
    signer.sign(command)
    assert check.problem(command, KEY, 5_000_000) is None
    assert without_signature(command.ext) == {"b": "T", "e": "0"}


def test_an_answer_without_a_challenge_is_none() -> None:
    with pytest.raises(MalformedBody, match="challenge"):
        session_signer(CREDENTIALS, Command(0, {"challenge": "no hex", "serverTime": "1"}), lambda: 0)
