"""Options that only make sense together are checked together."""

from typing import Any

import pytest

from tandemq.errors import ConfigError
from tandemq.remoting.config import RemotingConfig, TlsMode


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"write_buffer_low": 1 << 20, "write_buffer_high": 1 << 20}, "writeBufferLowWaterMark=1048576: must be below"),
        ({"tls_mode": TlsMode.ENFORCING}, "tlsMode=enforcing: needs tlsServerCertPath"),
        ({"acl_enable": True}, "aclEnable=true: needs aclFile"),
        ({"access_key": "k"}, "give both or none"),
        ({"tls_need_client_auth": True}, "needs tlsServerTrustCertPath"),
        ({"listen_port": 70_000}, "listenPort=70000: must be from 0 to 65535"),
    ],
)
def test_what_does_not_fit_together(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        RemotingConfig(**options)
