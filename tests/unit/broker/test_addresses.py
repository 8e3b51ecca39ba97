"""Addresses and ports of a broker."""

import socket

import pytest

from tandemq.broker import addresses
from tandemq.broker.addresses import HA_OFFSET, VIP_OFFSET, free_port, host_bytes, own_ip
from tandemq.errors import ConfigError


def test_a_configured_address_is_taken_as_it_is() -> None:
    assert own_ip("127.0.0.1") == "127.0.0.1"


def test_a_name_that_cannot_be_resolved_is_refused_by_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> object:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConfigError, match="brokerIP1=nowhere"):
        own_ip("nowhere")


def test_records_hold_a_host_in_eight_bytes() -> None:
    assert host_bytes("10.0.0.1", 10911) == bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def test_a_free_port_has_free_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The VIP and the HA listener lie beside it."""
    taken = set(range(12_000, 32_000)) - {20_000 + VIP_OFFSET, 20_000, 20_000 + HA_OFFSET}
    monkeypatch.setattr(addresses, "_is_free", lambda _, port: port not in taken)
    candidates = iter([19_999, 20_001, 20_000])
    monkeypatch.setattr(addresses.random, "choice", lambda _: next(candidates))
    assert free_port("127.0.0.1") == 20_000


def test_a_machine_without_a_free_port_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_is_free", lambda *_: False)
    with pytest.raises(ConfigError, match="listenPort=0"):
        free_port("127.0.0.1")
