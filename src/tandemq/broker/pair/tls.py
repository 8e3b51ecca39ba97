"""TLS of the HA port, from the certificates of the remoting port."""

import dataclasses

from tandemq.errors import ConfigError
from tandemq.remoting.config import RemotingConfig, TlsMode
from tandemq.remoting.tls import client_context, server_context
from tandemq.replication.config import ReplicationConfig
from tandemq.replication.tls_wire import HaTls


def ha_tls(replication: ReplicationConfig, remoting: RemotingConfig) -> HaTls | None:
    """Returns None when haTlsEnable is off; raises ConfigError with what is missing for either role."""
    if not replication.tls_enable:
        return None
    if not (remoting.tls_cert_path and remoting.tls_key_path):
        raise ConfigError(
            "haTlsEnable=true: needs tlsServerCertPath and tlsServerKeyPath (PEM files), also on a slave, which may "
            "become the master"
        )
    # The ports of clients may speak something else: tlsMode and useTLS are about those.
    both = dataclasses.replace(remoting, tls_mode=TlsMode.ENFORCING, use_tls=True)
    server, client = server_context(both), client_context(both)
    assert server is not None
    assert client is not None
    return HaTls(server, client)
