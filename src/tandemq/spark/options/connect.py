"""How to reach a cluster: addresses, credentials, TLS, patience."""

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tandemq.errors import ConfigError
from tandemq.settings import setting
from tandemq.spark.runtime.task_log import note

if TYPE_CHECKING:
    import ssl

    # Imported where it is used: a worker that reads files needs no client, and starts a seventh of a second sooner.
    from tandemq.client.blocking_cluster import ClusterAccess
    from tandemq.codec.acl import Credentials

ACCESS_KEY, SECRET_KEY = "TANDEMQ_ACCESS_KEY", "TANDEMQ_SECRET_KEY"
"""Environment variables of the driver and of executors, so that a secret need not be an option."""


@dataclass(frozen=True, kw_only=True)
class ConnectOptions:
    """Common to the source and the sink of live clusters."""

    nameserver: str = setting(
        "nameserver", "", "Name servers, `;`-separated: host:port;host:port.", aliases=("namesrvAddr",)
    )
    access_key: str = setting(
        "accessKey", "", "For clusters with access control. Default: environment variable `TANDEMQ_ACCESS_KEY`."
    )
    secret_key: str = setting(
        "secretKey", "", "Its secret; never shown. Default: environment variable `TANDEMQ_SECRET_KEY`."
    )
    security_token: str = setting("securityToken", "", "For temporary credentials; never shown.")
    use_tls: bool = setting("useTLS", False, "Speak TLS to name servers and brokers.")
    tls_ca_file: str = setting(
        "tlsClientTrustCertPath", "", "PEM file of the authority that signed the servers' certificates, on every node."
    )
    tls_cert_file: str = setting("tlsClientCertPath", "", "This client's certificate (PEM), where servers ask for one.")
    tls_key_file: str = setting("tlsClientKeyPath", "", "The private key of the client certificate (PEM).")
    tls_verify: bool = setting(
        "tlsClientAuthServer", True, "Check the server's certificate; false only for self-signed tests."
    )
    request_timeout_ms: int = setting(
        "requestTimeoutMs", 10_000, "Longest wait for one answer of a broker.", unit="ms", minimum=100
    )
    retries: int = setting(
        "retries", 5, "Tries per request after the first when a broker is gone: the next may be another member.",
        minimum=0,
    )  # fmt: skip
    retry_interval_ms: int = setting(
        "retryIntervalMs", 500, "Pause between tries, doubled each time.", unit="ms", minimum=1
    )

    def check_connect(self) -> None:
        """Raises ConfigError for what is missing or does not go together."""
        if not self.nameserver:
            raise ConfigError("nameserver: missing; give host:port of a name server (several with `;`)")
        if bool(self.access_key) != bool(self.secret_key):
            given, lacks = ("accessKey", "secretKey") if self.access_key else ("secretKey", "accessKey")
            raise ConfigError(f"{given} is given without {lacks}: access control needs both")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise ConfigError("tlsClientCertPath and tlsClientKeyPath: give both or none")
        if not self.use_tls and (self.tls_ca_file or self.tls_cert_file):
            raise ConfigError("tlsClientTrustCertPath and tlsClientCertPath need useTLS=true")

    def cluster_access(self) -> "ClusterAccess":
        """Returns these options as the client takes them; problems that are survived go to the task's log."""
        from tandemq.client.blocking_cluster import ClusterAccess

        return ClusterAccess(
            namesrv=self.nameserver,
            credentials=self._credentials(),
            tls=_tls_context(self.tls_ca_file, self.tls_cert_file, self.tls_key_file, self.tls_verify)
            if self.use_tls
            else None,
            timeout_s=self.request_timeout_ms / 1000,
            retries=self.retries,
            retry_interval_s=self.retry_interval_ms / 1000,
            report=note,
        )

    def _credentials(self) -> "Credentials | None":
        from tandemq.codec.acl import Credentials

        access_key = self.access_key or os.environ.get(ACCESS_KEY, "")
        secret_key = self.secret_key or os.environ.get(SECRET_KEY, "")
        return Credentials(access_key, secret_key, self.security_token) if access_key else None


@lru_cache(maxsize=16)
def _tls_context(ca_file: str, cert_file: str, key_file: str, verify: bool) -> "ssl.SSLContext | None":
    """Returns the context that the tasks of a process share."""
    from tandemq.remoting.config import RemotingConfig
    from tandemq.remoting.tls import client_context

    return client_context(
        RemotingConfig(
            use_tls=True,
            tls_client_trust_path=ca_file,
            tls_client_cert_path=cert_file,
            tls_client_key_path=key_file,
            tls_client_auth_server=verify,
        )
    )
