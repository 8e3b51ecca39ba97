"""haCoordinator: what is understood, and what is refused by name."""

import pytest

from tandemq.coordination.endpoints import Endpoint, parse_place
from tandemq.errors import ConfigError


def test_several_endpoints_in_order() -> None:
    place = parse_place("etcd://10.0.0.1:2379, etcd-b:12379,[::1]:5")
    assert place.endpoints == (Endpoint("10.0.0.1", 2379), Endpoint("etcd-b", 12379), Endpoint("::1", 5))
    assert not place.tls
    assert str(place) == "etcd://10.0.0.1:2379,etcd-b:12379,[::1]:5"


def test_tls_and_the_default_port() -> None:
    place = parse_place("etcds://etcd.example/")
    assert place.tls
    assert place.endpoints == (Endpoint("etcd.example", 2379),)


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1:2379", "http://a:1", "etcd://", "etcd://a:0", "etcd://a:x", "etcd://:1", "etcd://::1", "etcd://[::1"],
)
def test_what_is_no_place_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="haCoordinator"):
        parse_place(text)
