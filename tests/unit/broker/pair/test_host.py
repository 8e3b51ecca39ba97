"""What replication needs of a broker, a broker has."""

from typing import get_type_hints

from tandemq.broker.broker import Broker
from tandemq.broker.pair.host import PairHost


def test_a_broker_has_every_method_that_a_pair_calls() -> None:
    """Types of attributes are mypy's matter: they are set in `start`, so the class alone does not show them."""
    methods = {name for name in vars(PairHost) if not name.startswith("_")} - get_type_hints(PairHost).keys()
    assert {"allow_writes", "forbid_writes", "change_role", "is_master"} <= methods
    assert [name for name in sorted(methods) if not hasattr(Broker, name)] == []
