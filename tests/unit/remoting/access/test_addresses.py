"""Lists of addresses in both forms."""

import pytest

from tandemq.remoting.access.addresses import address_matcher, source_matcher, source_problem


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("10.0.0.*", ["10.0.0.1", "10.0.0.255"], ["10.0.1.1", "::1"]),
        ("10.0.*", ["10.0.9.1"], ["10.1.0.0"]),
        ("10.0.1-3.*", ["10.0.2.9"], ["10.0.4.9"]),
        ("10.0.0.{1,2}", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]),
        ("10.0.0.1,10.0.0.5", ["10.0.0.5"], ["10.0.0.2"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("::1", ["::1"], ["::2"]),
    ],
)
def test_address_patterns(pattern: str, inside: list[str], outside: list[str]) -> None:
    fits = address_matcher([pattern])
    assert all(fits(host) for host in inside)
    assert not any(fits(host) for host in outside)


def test_sources_of_a_policy() -> None:
    fits = source_matcher(["10.0.0.0/8", "192.168.1.7", "fd00::/8"])
    assert all(map(fits, ["10.1.2.3", "192.168.1.7", "fd00::1"]))
    assert not any(map(fits, ["11.0.0.1", "192.168.1.8", "fe80::1", "nonsense", ""]))


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.*", "", "localhost", "10.0.0.1/8/9"])
def test_what_is_no_source(text: str) -> None:
    assert "expected" in (source_problem(text) or "")
