"""What a broker's configuration accepts."""

from typing import Any

import pytest

from tandemq.broker.config import BrokerConfig, BrokerRole
from tandemq.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"role": BrokerRole.SLAVE}, "brokerRole"),
        ({"cluster_name": "../x"}, "brokerClusterName"),
        ({"broker_name": "a b"}, "brokerName"),
        ({"register_period_ms": 1}, "registerNameServerPeriod"),
        ({"region_id": "x" * 300}, "regionId"),
    ],
)
def test_a_wrong_configuration_names_its_key(options: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        BrokerConfig(**options)


def test_name_servers_are_listed_once() -> None:
    config = BrokerConfig(broker_name="b", namesrv_addr=" a:1;b:2 ;a:1;")
    assert config.namesrv_addresses == ("a:1", "b:2")


def test_a_master_is_0_whatever_the_file_says() -> None:
    assert BrokerConfig(broker_name="b", broker_id=3).broker_id == 0
    assert BrokerConfig(broker_name="b", broker_id=3, role=BrokerRole.SLAVE).broker_id == 3
