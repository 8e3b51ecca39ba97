"""One blocking connection."""

import socket

import pytest
from tests.unit.client.fake_socket import served

from tandemq.client.blocking_link import PREFIX, BlockingLink, Credentials
from tandemq.codec.acl import CHALLENGE, SERVER_TIME, SIGN_NONCE, SigningKey
from tandemq.codec.codes import OperatorCode, RequestCode, ResponseCode
from tandemq.codec.command import Command
from tandemq.errors import ConnectFailed, ConnectionLost, FrameTooLarge, RequestTimeout


def echo(command: Command) -> Command:
    return Command(0, {"asked": str(command.code)}, command.body)


def test_answers_are_taken_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, echo):
        link = BlockingLink("a:1")
        first, second = link.send(10, {}, b"one"), link.send(11, {}, b"x" * 300_000)
        assert len(link.wait(second).body) == 300_000
        assert (link.wait(first).ext, bytes(link.call(12, {}).body)) == ({"asked": "10"}, b"")
        link.close()


def test_a_server_that_knows_no_challenges_gets_classic_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: Command) -> Command:
        return (
            Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            if command.code == OperatorCode.CHALLENGE
            else echo(command)
        )

    with served(monkeypatch, answer) as asked:
        BlockingLink("a:1", credentials=Credentials("AK1", "SK1")).call(RequestCode.PULL_MESSAGE, {"topic": "T"})
    assert (asked[1].ext["AccessKey"], len(asked[1].ext["Signature"])) == ("AK1", 28)


def test_a_server_that_gives_a_challenge_gets_the_signatures_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(command: Command) -> Command:
        challenge = {CHALLENGE: "ab" * 16, SERVER_TIME: "1000"}
        return Command(0, challenge) if command.code == OperatorCode.CHALLENGE else echo(command)

    with served(monkeypatch, answer) as asked:
        BlockingLink("a:1", credentials=Credentials("AK1", "SK1")).call(RequestCode.PULL_MESSAGE, {"topic": "T"})
    assert (asked[1].ext["AccessKey"], asked[1].ext[SIGN_NONCE]) == ("AK1", "1")
    assert SigningKey("SK1").has_signed_session(asked[1], bytes.fromhex("ab" * 16))


def test_a_connection_that_closes_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, lambda _: None), pytest.raises(ConnectionLost, match="a:1"):
        BlockingLink("a:1").call(10, {})


def test_an_answer_that_does_not_come_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, lambda _: b""), pytest.raises(RequestTimeout, match=r"within 0.02 s"):
        BlockingLink("a:1", timeout=0.02).call(10, {})


def test_a_frame_beyond_the_limit_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, lambda _: PREFIX.pack(1 << 30, 4)), pytest.raises(FrameTooLarge, match="1073741824"):
        BlockingLink("a:1").call(10, {})


@pytest.mark.parametrize("address", ["a:1", "nowhere"])
def test_no_connection_is_said(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    def refuse(*_: object) -> socket.socket:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(ConnectFailed, match=address):
        BlockingLink(address)
