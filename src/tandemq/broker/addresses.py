"""Which address and ports a broker has: its own IP where the configuration names none, free ports where it says 0."""

import random
import socket

from tandemq.errors import ConfigError

VIP_OFFSET = -2
HA_OFFSET = 1
_ATTEMPTS = 200
_LISTENERS = range(12_000, 32_000)
"""Below the ports that the kernel gives to outgoing connections: one of those may be gone when a broker restarts, even
taken by somebody who tried to reach the broker meanwhile and was connected to itself."""


def own_ip(configured: str) -> str:
    """Returns the configured address, or the one this machine talks to others with; 127.0.0.1 if it talks to nobody."""
    if configured:
        try:
            return str(socket.getaddrinfo(configured, None, socket.AF_INET)[0][4][0])
        except OSError as error:
            raise ConfigError(f"brokerIP1={configured}: no such IPv4 address or host ({error})") from None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # documentation address: a route is looked up, nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def broker_port_of(ha_address: str) -> str:
    """Returns where the broker of an HA address usually listens, empty if that is no address."""
    host, _, port = ha_address.rpartition(":")
    return f"{host}:{int(port) - HA_OFFSET}" if host and port.isdecimal() else ""


def host_bytes(ip: str, port: int) -> bytes:
    """Returns an IPv4 host as records hold it; C++ clients can read no other."""
    return socket.inet_aton(ip) + port.to_bytes(4, "big")


def free_port(bind_address: str) -> int:
    """Returns a port that is free together with those of the VIP and HA listeners beside it."""
    for _ in range(_ATTEMPTS):
        port = random.choice(_LISTENERS)
        if all(_is_free(bind_address, port + offset) for offset in (VIP_OFFSET, 0, HA_OFFSET)):
            return port
    raise ConfigError(f"listenPort=0: no free port with free neighbours was found in {_ATTEMPTS} attempts")


def _is_free(bind_address: str, port: int) -> bool:
    if not 0 < port < 65536:
        return False
    with socket.socket() as probe:
        try:
            probe.bind((bind_address, port))
        except OSError:
            return False
    return True
