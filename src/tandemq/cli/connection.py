"""Which cluster a command speaks to, and how: flags, environment, contexts, and the local cluster of `tandemq up`.

The name servers come from the first of these that says something:

1. `--namesrv` of the command
2. the environment variable NAMESRV_ADDR, as in RocketMQ
3. the context: `tandemq --context NAME …`, TANDEMQ_CONTEXT, or the one chosen with `tandemq context use`
4. a cluster that `tandemq up` runs on this machine: of ./tandemq-data, else the one started last
5. 127.0.0.1:9876

TLS and credentials come from the environment (TANDEMQ_TLS, TANDEMQ_TLS_CA, TANDEMQ_TLS_CERT, TANDEMQ_TLS_KEY,
TANDEMQ_ACCESS_KEY, TANDEMQ_SECRET_KEY), and what it does not set from the context.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tandemq.cli import contexts
from tandemq.cli.local_cluster import running_clusters
from tandemq.client.config import ClientConfig
from tandemq.errors import ConfigError
from tandemq.remoting.access.group_key import key_credentials

DEFAULT_NAMESRV = ""
"""Means: find out, as above."""
LAST_RESORT = "127.0.0.1:9876"
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")

_TEXTS = {
    "access_key": "TANDEMQ_ACCESS_KEY",
    "secret_key": "TANDEMQ_SECRET_KEY",
    "tls_ca_file": "TANDEMQ_TLS_CA",
    "tls_cert_file": "TANDEMQ_TLS_CERT",
    "tls_key_file": "TANDEMQ_TLS_KEY",
}
"""Field of ClientConfig -> environment variable."""


def find_namesrv(given: str = DEFAULT_NAMESRV) -> str:
    """Returns the name servers to use; `given` is what the command line said."""
    if given:
        return given
    if found := os.environ.get("NAMESRV_ADDR", ""):
        return found
    context = contexts.chosen()
    if context is not None and context.namesrv:
        return context.namesrv
    for cluster in running_clusters():
        return cluster.plan.namesrv_address
    return LAST_RESORT


def client_config(namesrv: str = DEFAULT_NAMESRV, **options: Any) -> ClientConfig:
    """Returns the client's options: where to, credentials and TLS, and what the command adds."""
    return ClientConfig(namesrv=find_namesrv(namesrv), **security(), **options)


def client_config_with_key(namesrv: str, key_file: Path | None) -> ClientConfig:
    """Returns the client's options for an order to brokers: `--ha-key-file` proves the group's key, not an account."""
    config = client_config(namesrv)
    if key_file is None:
        return config
    account = key_credentials(read_key_file(key_file))
    return dataclasses.replace(config, access_key=account.access_key, secret_key=account.secret_key, security_token="")


def read_key_file(path: Path) -> str:
    """Returns the shared key that is the first line of a file; ConfigError if there is none."""
    try:
        key = path.read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--ha-key-file {path}: can't be read: {error}") from None
    if not key:
        raise ConfigError(f"--ha-key-file {path}: its first line is empty; the brokers' haSharedKey belongs there")
    return key


def security(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the credentials and TLS options of ClientConfig, from the environment and the context."""
    environment = os.environ if environment is None else environment
    context = contexts.chosen()
    found: dict[str, Any] = context.security() if context is not None else {}
    for field, variable in _TEXTS.items():
        if value := environment.get(variable, ""):
            found[field] = value
    if "TANDEMQ_TLS" in environment:
        found["use_tls"] = _switch("TANDEMQ_TLS", environment["TANDEMQ_TLS"])
    elif any(found.get(field) for field in ("tls_ca_file", "tls_cert_file")):
        found["use_tls"] = True
    for field, variable in _TEXTS.items():
        if field.startswith("tls_") and found.get(field) and not os.path.isfile(found[field]):
            raise ConfigError(f"{variable}={found[field]}: there is no such file")
    if found.get("tls_cert_file") and not found.get("tls_key_file"):
        raise ConfigError("a client certificate needs its key: set TANDEMQ_TLS_KEY, or --tls-key of the context")
    return found


def _switch(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ConfigError(f"{name}={text!r}: must be true or false")
