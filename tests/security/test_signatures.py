"""What proves an account goes no further than the server that checks it, and between our own parts it is worth nothing
to whoever copies it."""

import asyncio
from pathlib import Path

import pytest
from tests.security.guarded import SECRETS, Guarded, run

from tandemq.client.blocking_link import BlockingLink
from tandemq.codec.acl import SIGNATURE_FIELDS, Credentials, SessionSigner, session_signer, sign
from tandemq.codec.codes import OperatorCode
from tandemq.codec.codes import RequestCode as Code
from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.frame import FrameReader
from tandemq.codec.heartbeat import ConsumerGroupInfo, Heartbeat, Subscription, encode_heartbeat
from tandemq.remoting.connection import Connection
from tandemq.replication.metadata import PairCode


class Wire:
    """One connection, byte by byte: what somebody in the middle could do."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()

    @classmethod
    async def to(cls, address: str) -> "Wire":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, frame: bytes) -> Command:
        self._writer.write(frame)
        while True:
            data = await asyncio.wait_for(self._reader.read(65536), 10)
            assert data, "the server closed the connection"
            for found in self._frames.feed(data):
                return decode_command(found)

    async def signer(self, account: str) -> SessionSigner:
        answer = await self.ask(encode_request(Command(OperatorCode.CHALLENGE)))
        return session_signer(Credentials(account, SECRETS[account]), answer, lambda: 0)

    def close(self) -> None:
        self._writer.close()


def signed(signer: SessionSigner, code: int, opaque: int) -> bytes:
    command = Command(code, {"topic": "orders"}, opaque=opaque)
    signer.sign(command)
    return encode_request(command)


def test_a_copied_request_is_refused(tmp_path: Path) -> None:
    """On the same connection, on another, and at another server that knows the same accounts."""

    async def story(guarded: Guarded) -> None:
        wire = await Wire.to(guarded.broker.address)
        frame = signed(await wire.signer("operator"), Code.GET_BROKER_CONFIG, 7)
        assert (await wire.ask(frame)).code == 0
        again = await wire.ask(frame)
        assert (again.code, "used before" in (again.remark or "")) == (16, True)
        for address in (guarded.broker.address, guarded.cluster.namesrv_address):
            other = await Wire.to(address)
            assert (await other.ask(frame)).code == 16
            await other.signer("worker")
            elsewhere = await other.ask(frame)
            assert (elsewhere.code, "does not fit" in (elsewhere.remark or "")) == (16, True)
            other.close()
        wire.close()

    run(tmp_path, story)


def test_a_request_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    """RocketMQ's signature covers neither the code nor the names: UPDATE could be made of GET."""

    async def story(guarded: Guarded) -> None:
        wire = await Wire.to(guarded.broker.address)
        signer = await wire.signer("operator")
        for old, new in ((b'"code":26', b'"code":25'), (b'"topic"', b'"group"'), (b'"opaque":7', b'"opaque":8')):
            frame = signed(signer, Code.GET_BROKER_CONFIG, 7)
            assert old in frame
            assert (await wire.ask(frame.replace(old, new))).code == 16
        wire.close()

    run(tmp_path, story)


def test_requests_of_our_own_demand_the_stronger_signature(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        wire = await Wire.to(guarded.broker.address)
        for code in (*PairCode, *OperatorCode):
            if code == OperatorCode.CHALLENGE:
                continue
            ext = sign({}, b"", "operator", SECRETS["operator"])
            answer = await wire.ask(encode_request(Command(code, ext)))
            assert (answer.code, "Signature256" in (answer.remark or "")) == (16, True), code
        # RocketMQ's own requests are taken with RocketMQ's own signature.
        ext = sign({}, b"", "operator", SECRETS["operator"])
        assert (await wire.ask(encode_request(Command(Code.GET_BROKER_CONFIG, ext)))).code == 0
        assert (await guarded.ask("operator", PairCode.HA_DETAIL)).code == 0
        wire.close()

    run(tmp_path, story)


def test_rocketmqs_signature_can_be_refused_altogether(tmp_path: Path) -> None:
    async def story(guarded: Guarded) -> None:
        wire = await Wire.to(guarded.broker.address)
        ext = sign({}, b"", "operator", SECRETS["operator"])
        assert (await wire.ask(encode_request(Command(Code.GET_BROKER_CONFIG, ext)))).code == 16
        assert (await guarded.ask("operator", Code.GET_BROKER_CONFIG)).code == 0
        wire.close()

    run(tmp_path, story, aclClassicSignatures="false")


@pytest.mark.parametrize("code", [Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY])
def test_an_administrators_proof_is_never_handed_to_a_client(tmp_path: Path, code: Code) -> None:
    """The client would have had what it takes to act as the administrator."""

    async def story(guarded: Guarded) -> None:
        message_id = (await guarded.send("operator", "orders")).ext["msgId"]
        given: list[dict[str, str]] = []

        def take(connection: Connection, command: Command) -> Command:
            given.append(command.ext)
            return Command(0, {}, b"{}")

        guarded.client("worker").handlers[code] = take
        consumer = ConsumerGroupInfo(group="workers", subscriptions=(Subscription(topic="orders"),))
        beat = encode_heartbeat(Heartbeat(client_id="c", consumers=(consumer,)))
        assert (await guarded.ask("worker", Code.HEART_BEAT, {}, beat)).code == 0
        ext = {"consumerGroup": "workers", "clientId": "c", "msgId": message_id, "topic": "orders"}
        assert (await guarded.ask("operator", code, ext)).code == 0
        classic = sign(ext, b"", "operator", SECRETS["operator"], "token")
        wire = await Wire.to(guarded.broker.address)
        assert (await wire.ask(encode_request(Command(code, classic)))).code == 0
        wire.close()
        assert len(given) == 2
        assert [SIGNATURE_FIELDS & set(ext) for ext in given] == [set(), set()]
        assert all(ext["consumerGroup"] == "workers" for ext in given)

    run(tmp_path, story)


def test_blocking_links_sign_too(tmp_path: Path) -> None:
    """Spark's executors and bulk readers: the same proof, without an event loop."""

    async def story(guarded: Guarded) -> None:
        def ask() -> list[int]:
            link = BlockingLink(guarded.broker.address, credentials=Credentials("operator", SECRETS["operator"]))
            try:
                return [link.call(PairCode.HA_DETAIL, {}).code, link.call(Code.GET_BROKER_CONFIG, {}).code]
            finally:
                link.close()

        assert await asyncio.to_thread(ask) == [0, 0]

    run(tmp_path, story)
