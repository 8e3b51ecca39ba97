"""Whose master is asked to forget a replica."""

import pytest

from tandemq.cli.ha_orders import master_of
from tandemq.errors import ClientError

REGISTER = {"members": [{"replica": "b:1#1", "address": "b:1"}], "joining": [{"replica": "c:1#1", "address": "c:1"}]}
NODES = [
    {"address": "a:1", "role": "master", "register": REGISTER},
    {"address": "b:1", "role": "slave", "register": REGISTER},
    {"address": "x:1", "role": "master", "register": None},
]


@pytest.mark.parametrize("name", ["b:1", "b:1#1", "c:1#1"])
def test_it_is_the_one_whose_register_names_it(name: str) -> None:
    assert master_of(NODES, name) == "a:1"


def test_a_name_that_nobody_or_many_know_is_an_error() -> None:
    with pytest.raises(ClientError, match="no master's register names it"):
        master_of(NODES, "z:1")
    with pytest.raises(ClientError, match="named by a:1, d:1"):
        master_of([*NODES, {**NODES[0], "address": "d:1"}], "b:1")
