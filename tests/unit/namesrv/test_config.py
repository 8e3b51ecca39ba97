"""Options of a name server."""

import re

import pytest

from tandemq.errors import ConfigError
from tandemq.namesrv.config import NamesrvConfig
from tandemq.settings import overridden, settings_of


@pytest.mark.parametrize(
    ("key", "value"),
    [("brokerTimeoutMillis", "999"), ("metricsPort", "65536"), ("brokersMax", "0"), ("enableTopicList", "perhaps")],
)
def test_a_wrong_value_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        overridden(NamesrvConfig(), {key: value})


def test_neither_a_path_nor_an_address_can_be_changed_from_afar() -> None:
    """UPDATE_NAMESRV_CONFIG takes what is tunable: who may ask must not reach a file or open a port."""
    settings = settings_of(NamesrvConfig).values()
    tunable = {described.key for _, described in settings if described.tunable}
    assert "brokerTimeoutMillis" in tunable
    assert not [key for key in tunable if re.search("path|address|port$|^port", key, re.IGNORECASE)]
