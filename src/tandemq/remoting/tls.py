"""TLS contexts from the configured PEM files; whatever is wrong with them is named by option and file."""

import ssl

from tandemq.errors import ConfigError
from tandemq.remoting.config import RemotingConfig, TlsMode

HANDSHAKE_BYTE = 0x16
"""A TLS ClientHello begins with it; a frame would have to be larger than 352 MiB to do so."""


def server_context(config: RemotingConfig) -> ssl.SSLContext | None:
    """Returns the context of listening ports; None when tlsMode is disabled."""
    if config.tls_mode is TlsMode.DISABLED:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, "tlsServerCertPath", config.tls_cert_path, "tlsServerKeyPath", config.tls_key_path)
    if config.tls_trust_path:
        _load_trust(context, "tlsServerTrustCertPath", config.tls_trust_path)
        context.verify_mode = ssl.CERT_REQUIRED if config.tls_need_client_auth else ssl.CERT_OPTIONAL
    return context


def client_context(config: RemotingConfig) -> ssl.SSLContext | None:
    """Returns the context of connections we open; None when useTLS is off."""
    if not config.use_tls:
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.tls_client_trust_path:
        _load_trust(context, "tlsClientTrustCertPath", config.tls_client_trust_path)
    if not config.tls_client_auth_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.tls_client_cert_path:
        cert, key = config.tls_client_cert_path, config.tls_client_key_path
        _load_chain(context, "tlsClientCertPath", cert, "tlsClientKeyPath", key)
    return context


def _load_chain(context: ssl.SSLContext, cert_name: str, cert: str, key_name: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{cert_name}={cert}, {key_name}={key}: no usable PEM certificate and key: {error}") from None


def _load_trust(context: ssl.SSLContext, name: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{name}={path}: no usable PEM certificates: {error}") from None
