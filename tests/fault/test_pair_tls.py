"""Real processes with TLS on the HA port: catching up, kills of either, promotion; a stranger hears only TLS."""

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from tandemq.codec import ha_session as ha
from tandemq.codec.command import Command
from tandemq.codec.ha_reasons import Reason
from tandemq.replication.metadata import PairCode
from tandemq.testing.pair import HOST, BrokerProcess, RealPair

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def certificates(where: Path) -> dict[str, str]:
    """An authority and one certificate by it, which every node shows and every node checks."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make certificates")
    names = {name: str(where / f"{name}.pem") for name in ("ca", "ca-key", "cert", "key")}
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    authority = [*run, "-subj", "/CN=authority", "-keyout", names["ca-key"], "-out", names["ca"]]
    subject = ["-subj", "/CN=broker", "-addext", f"subjectAltName=IP:{HOST}", "-addext", "basicConstraints=CA:FALSE"]
    signed = ["-CA", names["ca"], "-CAkey", names["ca-key"], "-keyout", names["key"], "-out", names["cert"]]
    for command in (authority, [*run, *subject, *signed]):
        subprocess.run(command, check=True, capture_output=True)
    return {
        "haTlsEnable": "true",
        "tlsServerCertPath": names["cert"],
        "tlsServerKeyPath": names["key"],
        "tlsServerTrustCertPath": names["ca"],
        "tlsServerNeedClientAuth": "true",
        "tlsClientTrustCertPath": names["ca"],
        "tlsClientCertPath": names["cert"],
        "tlsClientKeyPath": names["key"],
    }


def connected(broker: BrokerProcess) -> socket.socket:
    host, _, port = broker.ha_address.rpartition(":")
    return socket.create_connection((host, int(port)), 10)


def refused_in_the_clear(broker: BrokerProcess) -> ha.Refuse:
    """What a slave without TLS is told."""
    with connected(broker) as plain:
        plain.sendall(ha.encode_control(ha.Preamble(ha.VERSION, "0" * 32)))
        said = b""
        while more := plain.recv(4096):
            said += more
    [refusal] = ha.SessionReader().feed(said)
    assert isinstance(refusal, ha.Refuse)
    return refusal


def shows_a_certificate_and_wants_one(broker: BrokerProcess, authority: str) -> None:
    context = ssl.create_default_context(cafile=authority)
    with connected(broker) as plain:
        shaken = context.wrap_socket(plain, server_hostname=HOST)
        # With TLS 1.3 the server's word on our missing certificate comes after the handshake.
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shaken.recv(1)
        shaken.close()


def test_a_pair_inside_tls_is_killed_promoted_and_loses_nothing(tmp_path: Path) -> None:
    properties = certificates(tmp_path)

    async def story() -> None:
        async with RealPair(tmp_path, properties=properties) as pair:
            pair.master.start()
            pair.slave.start()
            await pair.in_sync()
            refusal = await asyncio.to_thread(refused_in_the_clear, pair.master)
            assert refusal.code is Reason.TLS
            await asyncio.to_thread(
                shows_a_certificate_and_wants_one, pair.master, properties["tlsClientTrustCertPath"]
            )
            load = pair.load(senders=4)
            for victim in (pair.slave, pair.master):
                before = len(load.result.acknowledged)
                victim.kill()
                victim.start()
                await pair.in_sync(quiet=False)
                await load.reached(before + 500)
            # More than a socket takes at once, from the log's files.
            pair.slave.kill()
            shutil.rmtree(pair.slave.store)
            pair.slave.start()
            await pair.in_sync(quiet=False)
            result = await load.stop()
            await pair.in_sync()
            reply = await pair.client.invoke(pair.slave.address, Command(PairCode.PROMOTE, {"role": "SYNC_MASTER"}), 20)
            assert reply.code == 0, reply.remark
            await pair.in_sync(pair.slave)
            await pair.check(result)

    asyncio.run(story())
