"""Server and client over real sockets, on asyncio's loop and on uvloop: limits, lifecycle, pushed requests, TLS."""

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from tandemq.codec.codes import ResponseCode
from tandemq.codec.command import Command, encode_request, encode_response
from tandemq.errors import ConfigError, ConnectFailed, ConnectionLost, RequestTimeout
from tandemq.remoting.access.control import AccessControl
from tandemq.remoting.access.needs import needs
from tandemq.remoting.access.plain import PlainAccounts
from tandemq.remoting.client import RemotingClient
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.remoting.connection import Connection
from tandemq.remoting.server import LOST_IN_TURN, RemotingServer
from tandemq.testing.waiting import until

HOST = "127.0.0.1"
Runner = Callable[[Callable[[], Awaitable[None]]], None]


def config(**changes: object) -> RemotingConfig:
    return RemotingConfig(**{"listen_port": 0, "bind_address": HOST, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Runs a story on either loop."""
    runner = uvloop.run if request.param == "uvloop" else asyncio.run
    return lambda story: runner(story())  # type: ignore[operator, return-value]


def echo(_: Connection, command: Command) -> bytes:
    return encode_response(command.opaque, 0, None, {"x": "y"}, bytes(command.body))


def test_requests_both_ways(run: Runner) -> None:
    async def ask_back(connection: Connection, command: Command) -> Command:
        answer = await connection.invoke(Command(40, {"q": "?"}), 5.0)
        return Command(0, {"client said": answer.ext["a"]})

    async def story() -> None:
        async with RemotingServer(config(), {1: echo, 2: ask_back}) as server:
            address = f"{HOST}:{server.port}"
            async with RemotingClient(config(), {40: lambda c, m: Command(0, {"a": m.ext["q"]})}) as client:
                big = bytes(3_000_000)
                assert (await client.invoke(address, Command(1, body=big), 10.0)).body == big
                assert (await client.invoke(address, Command(2), 5.0)).ext == {"client said": "?"}
                answers = await asyncio.gather(
                    *(client.invoke(address, Command(1, body=b"%d" % n), 5.0) for n in range(500))
                )
                assert [answer.body for answer in answers] == [b"%d" % n for n in range(500)]
                assert server.status().connections == 1
                await client.invoke_oneway(address, Command(1))
                await until(lambda: server.status().requests == 503)
            await until(lambda: server.status().connections == 0)
        assert server.status().bytes_in > 3_000_000

    run(story)


def test_second_port_without_some_codes(run: Runner) -> None:
    async def story() -> None:
        async with RemotingServer(config(), {1: echo, 11: echo}) as server, RemotingClient(config()) as client:
            vip = await server.listen(0, without=frozenset({11}))
            assert vip != server.port
            assert (await client.invoke(f"{HOST}:{server.port}", Command(11), 5.0)).code == 0
            assert (await client.invoke(f"{HOST}:{vip}", Command(11), 5.0)).code == 3
            assert (await client.invoke(f"{HOST}:{vip}", Command(1), 5.0)).code == 0

    run(story)


def test_a_deadline_that_is_past_when_the_request_leaves_is_a_timeout(run: Runner) -> None:
    """uvloop gives a handle without a time for it."""

    async def story() -> None:
        async with RemotingServer(config(), {1: echo}) as server, RemotingClient(config()) as client:
            address = f"{HOST}:{server.port}"
            assert (await client.invoke(address, Command(1), 10.0)).code == 0
            connection = await client.connection(address)
            with pytest.raises(RequestTimeout):
                await connection.start_invoke(Command(99), -0.001)
            assert (await client.invoke(address, Command(1), 10.0)).code == 0

    run(story)


def test_client_errors(run: Runner) -> None:
    async def never(_: Connection, command: Command) -> None:
        await asyncio.Event().wait()

    async def story() -> None:
        async with RemotingServer(config(), {1: echo, 4: never}) as server, RemotingClient(config()) as client:
            address = f"{HOST}:{server.port}"
            with pytest.raises(RequestTimeout, match=r"code 4 within 0\.05 s"):
                await client.invoke(address, Command(4), 0.05)
            assert (await client.invoke(address, Command(1), 5.0)).code == 0  # reconnected
            waiting = asyncio.ensure_future(client.invoke(address, Command(4), 60.0))
            await until(lambda: any(c.tasks for c in server.connections))
            for connection in list(server.connections):
                connection.abort("test")
            with pytest.raises(ConnectionLost):
                await waiting
            assert (await client.invoke(address, Command(1), 5.0)).code == 0
        with pytest.raises(ConnectFailed, match=address):
            async with RemotingClient(config()) as other:
                await other.invoke(address, Command(1), 5.0)
        with pytest.raises(ConnectionLost, match="closed"):
            await client.invoke(address, Command(1), 5.0)

    run(story)


def test_stop_answers_what_was_accepted(run: Runner) -> None:
    gate: asyncio.Event

    async def slow(_: Connection, command: Command) -> Command:
        await gate.wait()
        return Command(0, {"done": "yes"})

    async def story() -> None:
        nonlocal gate
        gate = asyncio.Event()
        server = RemotingServer(config(), {1: slow})
        await server.start()
        async with RemotingClient(config()) as client:
            waiting = asyncio.ensure_future(client.invoke(f"{HOST}:{server.port}", Command(1), 10.0))
            await until(lambda: any(c.tasks for c in server.connections))
            stopping = asyncio.ensure_future(server.stop())
            await asyncio.sleep(0)
            gate.set()
            assert (await waiting).ext == {"done": "yes"}
            await stopping
        assert server.status().connections == 0

    run(story)


def test_connections_beyond_the_limit_are_closed(run: Runner) -> None:
    async def story() -> None:
        async with RemotingServer(config(connections_max=2), {1: echo}) as server:
            links = [await asyncio.open_connection(HOST, server.port) for _ in range(2)]
            await until(lambda: server.status().connections == 2)
            reader, writer = await asyncio.open_connection(HOST, server.port)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
            assert server.status().connections_refused == 1
            for _, link in links:
                link.close()

    run(story)


def test_one_address_has_no_more_connections_than_its_limit(run: Runner) -> None:
    """The first request on a further one is told why; one that goes makes room."""

    async def story() -> None:
        async with RemotingServer(config(connections_per_address_max=2), {1: echo}) as server:
            links = [await asyncio.open_connection(HOST, server.port) for _ in range(2)]
            await until(lambda: server.status().connections == 2)
            async with RemotingClient(config()) as client:
                refused = await client.invoke(f"{HOST}:{server.port}", Command(1), 5)
                assert refused.code == ResponseCode.SYSTEM_BUSY
                assert "connectionsPerAddressMax=2" in (refused.remark or "")
            links[0][1].close()
            await until(lambda: server.status().connections == 1)
            async with RemotingClient(config()) as client:
                assert (await client.invoke(f"{HOST}:{server.port}", Command(1), 5)).code == ResponseCode.SUCCESS
            links[1][1].close()

    run(story)


def test_idle_connections_are_closed(run: Runner) -> None:
    async def story() -> None:
        async with RemotingServer(config(idle_seconds_max=1), {1: echo}) as server:
            reader, writer = await asyncio.open_connection(HOST, server.port)
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()

    run(story)


def test_a_client_that_does_not_read_costs_a_bounded_buffer_and_is_cut(run: Runner) -> None:
    """It asks for 400 MB and reads nothing: the server holds a few MB and closes it after the stall limit."""

    def large(_: Connection, command: Command) -> bytes:
        return encode_response(command.opaque, 0, None, None, bytes(1_000_000))

    async def story() -> None:
        limits = config(
            write_buffer_high=2_000_000, write_buffer_low=1_000_000, write_stall_seconds_max=1, idle_seconds_max=2
        )
        async with RemotingServer(limits, {1: large, 2: echo}) as server, RemotingClient(config()) as other:
            _, writer = await asyncio.open_connection(HOST, server.port)
            writer.write(b"".join(encode_request(Command(1, opaque=n)) for n in range(400)))
            await until(lambda: any(not c.is_writable for c in server.connections))
            assert server.status().unsent_size < 8_000_000
            assert (await other.invoke(f"{HOST}:{server.port}", Command(2), 5.0)).code == 0
            await until(lambda: server.status().connections == 1)
            assert server.status().requests < 50
            writer.transport.abort()

    run(story)


def test_slow_readers_together_are_bounded(run: Runner) -> None:
    """Each below its own limit, together above the server's: the worst goes, the others stay."""

    def large(_: Connection, command: Command) -> bytes:
        return encode_response(command.opaque, 0, None, None, bytes(8_000_000))

    async def story() -> None:
        async with RemotingServer(config(write_buffer_total_max=20_000_000), {1: large}) as server:
            links = []
            for _ in range(6):
                _, writer = await asyncio.open_connection(HOST, server.port)
                writer.write(encode_request(Command(1)))
                links.append(writer)
            await until(lambda: server.status().requests == 6)
            await until(lambda: server.status().unsent_size <= 20_000_000)
            assert server.status().connections >= 1
            for writer in links:
                writer.transport.abort()

    run(story)


def test_a_port_in_use_is_named(run: Runner) -> None:
    async def story() -> None:
        async with RemotingServer(config(), {}) as server:
            with pytest.raises(ConfigError, match=f"listenPort={server.port}"):
                await RemotingServer(config(listen_port=server.port), {}).start()

    run(story)


def test_signed_requests_pass_access_control(run: Runner) -> None:
    """What a broker with an account sends is accepted; others are refused and stay connected."""
    accounts = "accounts:\n- accessKey: RocketMQ\n  secretKey: 12345678\n  admin: true\n"

    async def story() -> None:
        plain = PlainAccounts.from_text(accounts, "acl.yml")
        access = AccessControl([plain.by_key.get], now=asyncio.get_running_loop().time)
        async with RemotingServer(config(), {1: needs()(echo)}, admit=access.admit) as server:
            address = f"{HOST}:{server.port}"
            async with RemotingClient(config(access_key="RocketMQ", secret_key="12345678")) as known:
                assert (await known.invoke(address, Command(1, {"a": "b"}, b"body"), 5.0)).code == 0
            async with RemotingClient(config()) as unknown:
                for _ in range(2):
                    assert (await unknown.invoke(address, Command(1), 5.0)).code == 16

    run(story)


# TLS ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """(certificate, key) for 127.0.0.1, self-signed."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder: Path = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.mark.parametrize("mode", [TlsMode.ENFORCING, TlsMode.PERMISSIVE])
def test_tls(run: Runner, certificate: tuple[str, str], mode: TlsMode) -> None:
    """Enforcing serves TLS only; permissive tells by the first byte and serves both."""
    cert, key = certificate

    async def story() -> None:
        async with RemotingServer(config(tls_mode=mode, tls_cert_path=cert, tls_key_path=key), {1: echo}) as server:
            address = f"{HOST}:{server.port}"
            async with RemotingClient(config(use_tls=True, tls_client_trust_path=cert)) as secure:
                body = bytes(100_000)
                assert (await secure.invoke(address, Command(1, body=body), 10.0)).body == body
            async with RemotingClient(config()) as plain:
                if mode is TlsMode.PERMISSIVE:
                    assert (await plain.invoke(address, Command(1), 10.0)).code == 0
                else:
                    with pytest.raises((ConnectionLost, RequestTimeout)):
                        await plain.invoke(address, Command(1), 1.0)
            async with RemotingClient(config(use_tls=True)) as stranger:
                with pytest.raises(ConnectFailed, match="certificate"):
                    await stranger.invoke(address, Command(1), 10.0)

    run(story)


def test_tls_to_a_server_without_it_is_told_as_that(run: Runner, certificate: tuple[str, str]) -> None:
    """A server that closes a handshake leaves an error without a word: the sentence must not end there."""

    async def story() -> None:
        secure = config(use_tls=True, tls_client_trust_path=certificate[0])
        async with RemotingServer(config(), {1: echo}) as server, RemotingClient(secure) as client:
            with pytest.raises(ConnectFailed, match="TLS"):
                await client.invoke(f"{HOST}:{server.port}", Command(1), 10.0)

    run(story)


def test_tls_with_client_certificates(run: Runner, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    server_side = config(
        tls_mode=TlsMode.ENFORCING, tls_cert_path=cert, tls_key_path=key, tls_trust_path=cert, tls_need_client_auth=True
    )

    async def story() -> None:
        async with RemotingServer(server_side, {1: echo}) as server:
            address = f"{HOST}:{server.port}"
            known = config(use_tls=True, tls_client_trust_path=cert, tls_client_cert_path=cert, tls_client_key_path=key)
            async with RemotingClient(known) as client:
                assert (await client.invoke(address, Command(1), 10.0)).code == 0
            async with RemotingClient(config(use_tls=True, tls_client_trust_path=cert)) as unknown:
                with pytest.raises((ConnectionLost, ConnectFailed, RequestTimeout)):
                    await unknown.invoke(address, Command(1), 2.0)

    run(story)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tls_mode": TlsMode.ENFORCING}, "tlsServerCertPath"),
        ({"tls_need_client_auth": True}, "tlsServerTrustCertPath"),
        ({"acl_enable": True}, "aclFile"),
        ({"access_key": "RocketMQ"}, "secretKey"),
        ({"write_buffer_low": 2**20, "write_buffer_high": 2**20}, "writeBufferLowWaterMark"),
        ({"listen_port": 70000}, "listenPort=70000"),
    ],
)
def test_options_that_contradict_each_other(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        config(**changes)


def test_files_that_are_no_certificates_are_named() -> None:
    with pytest.raises(ConfigError, match="tlsServerCertPath=/nowhere/cert"):
        RemotingServer(
            config(tls_mode=TlsMode.ENFORCING, tls_cert_path="/nowhere/cert", tls_key_path="/nowhere/key"), {}
        )


def test_the_ends_of_many_connections_are_told_a_few_in_each_turn(run: Runner) -> None:
    async def story() -> None:
        told: list[Connection] = []
        async with RemotingServer(config(), {1: echo}, on_disconnect=told.append) as server:
            clients = []
            for _ in range(LOST_IN_TURN + 6):
                _, writer = await asyncio.open_connection(HOST, server.port)
                clients.append(writer)
            await until(lambda: server.status().connections == len(clients))
            lost = list(server.connections)
            for connection in lost:
                server._lost(connection)
            assert told == lost[:LOST_IN_TURN], "the others wait for the next turn"
            await until(lambda: told == lost)
            for writer in clients:
                writer.close()
        assert told == lost, "each is told once"

    run(story)


def test_a_server_that_stops_has_told_of_every_connection(run: Runner) -> None:
    async def story() -> None:
        told: list[Connection] = []
        server = RemotingServer(config(), {1: echo}, on_disconnect=told.append)
        await server.start()
        writers = [(await asyncio.open_connection(HOST, server.port))[1] for _ in range(2 * LOST_IN_TURN)]
        await until(lambda: server.status().connections == len(writers))
        await server.stop()
        assert len(told) == len(writers)
        for writer in writers:
            writer.close()

    run(story)
