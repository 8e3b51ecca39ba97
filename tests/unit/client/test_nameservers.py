"""Which name server is asked."""

import pytest

from tandemq.client.nameservers import NameServers


def test_the_one_in_use_is_asked_first_and_each_once() -> None:
    servers = NameServers(["a", "b", "c"], start=1)
    assert servers.current == "b"
    assert servers.candidates() == ("b", "c", "a")


def test_whoever_answers_stays_in_use() -> None:
    servers = NameServers(["a", "b"], start=0)
    assert not servers.answered("a")
    assert servers.answered("b")
    assert servers.current == "b"


def test_a_start_beyond_the_list_counts_round() -> None:
    assert NameServers(["a", "b"], start=5).current == "b"


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        NameServers([], 0)
