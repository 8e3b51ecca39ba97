"""Options of every remoting port, server and client side: RocketMQ's NettyServerConfig and NettyClientConfig."""

from dataclasses import dataclass
from enum import Enum

from tandemq.errors import ConfigError
from tandemq.settings import check, setting


class TlsMode(Enum):
    """What a listening port speaks."""

    DISABLED = "disabled"
    """Plain TCP only."""
    PERMISSIVE = "permissive"
    """Both: a first byte of 0x16 starts a TLS handshake."""
    ENFORCING = "enforcing"
    """TLS only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingConfig:
    """Limits, timeouts and TLS of the remoting protocol."""

    listen_port: int = setting(
        "listenPort", 10911, "Port for clients; 0 takes a free one. Name servers use 9876.", minimum=0, maximum=65535
    )
    bind_address: str = setting("bindAddress", "0.0.0.0", "Address to listen on; `::` listens on IPv6 too.")
    backlog: int = setting(
        "serverSocketBacklog", 1024, "Connections the kernel holds until they are accepted.", minimum=1, maximum=65535
    )
    frame_size_max: int = setting(
        "frameMaxLength",
        16 * 1024 * 1024,
        "Largest frame accepted; a peer that announces more is disconnected.",
        unit="bytes",
        minimum=1024,
        maximum=256 * 1024 * 1024,
        aliases=("com.rocketmq.remoting.frameMaxLength",),
    )
    header_size_max: int = setting(
        "headerMaxLength", 256 * 1024, "Largest command header accepted.", unit="bytes", minimum=1024, maximum=0xFFFFFF
    )
    connections_max: int = setting(
        "serverConnectionsMax", 16384, "Connections accepted at a time; more are closed at once.", minimum=1
    )
    connections_per_address_max: int = setting(
        "connectionsPerAddressMax",
        8192,
        "Connections from one address at a time; the first request on a further one is answered SYSTEM_BUSY.",
        minimum=1,
        maximum=1_000_000,
    )
    requests_in_progress_max: int = setting(
        "serverAsyncSemaphoreValue",
        4096,
        "Requests of one connection that may wait for a slow (asynchronous) handler; more are answered SYSTEM_BUSY.",
        minimum=1,
    )
    idle_seconds_max: int = setting(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection with no byte either way for this long is closed.",
        unit="s",
        minimum=1,
        aliases=("clientChannelMaxIdleTimeSeconds",),
    )
    write_buffer_high: int = setting(
        "writeBufferHighWaterMark",
        1024 * 1024,
        "Unsent bytes of one connection above which its requests are no longer read.",
        unit="bytes",
        minimum=4096,
    )
    write_buffer_low: int = setting(
        "writeBufferLowWaterMark",
        256 * 1024,
        "Unsent bytes below which reading goes on.",
        unit="bytes",
        minimum=0,
    )
    write_buffer_max: int = setting(
        "writeBufferSizeMax",
        64 * 1024 * 1024,
        "Unsent bytes at which a connection that does not read its answers is closed.",
        unit="bytes",
        minimum=1024 * 1024,
    )
    write_buffer_total_max: int = setting(
        "writeBufferTotalMax",
        512 * 1024 * 1024,
        "Unsent bytes of all slow readers together; beyond it the one that holds most is closed.",
        unit="bytes",
        minimum=1024 * 1024,
    )
    receive_buffer_total_max: int = setting(
        "receiveBufferTotalMax",
        512 * 1024 * 1024,
        "Bytes that unfinished frames of all connections may hold; beyond it the connection that wants more is closed.",
        unit="bytes",
        minimum=16 * 1024 * 1024,
    )
    write_stall_seconds_max: int = setting(
        "writeStallSecondsMax",
        60,
        "A connection whose unsent bytes stay above the low mark for this long is closed.",
        unit="s",
        minimum=1,
    )
    connect_timeout_ms: int = setting(
        "connectTimeoutMillis", 3000, "How long a client waits for a TCP (and TLS) connection.", unit="ms", minimum=1
    )
    inflight_max: int = setting(
        "clientAsyncSemaphoreValue", 65535, "Requests of one connection that may wait for an answer.", minimum=1
    )
    tls_mode: TlsMode = setting(
        "tlsMode", TlsMode.DISABLED, "What listening ports speak.", aliases=("tls.server.mode",)
    )
    tls_cert_path: str = setting(
        "tlsServerCertPath", "", "PEM certificate chain of this server.", aliases=("tls.server.certPath",)
    )
    tls_key_path: str = setting("tlsServerKeyPath", "", "PEM private key of it.", aliases=("tls.server.keyPath",))
    tls_trust_path: str = setting(
        "tlsServerTrustCertPath",
        "",
        "PEM certificates of authorities whose clients are accepted; needed when tlsServerNeedClientAuth is true.",
        aliases=("tls.server.trustCertPath",),
    )
    tls_need_client_auth: bool = setting(
        "tlsServerNeedClientAuth", False, "Clients must show a certificate.", aliases=("tls.server.need.client.auth",)
    )
    use_tls: bool = setting("useTLS", False, "Connections we open speak TLS.", aliases=("tls.enable",))
    tls_client_trust_path: str = setting(
        "tlsClientTrustCertPath",
        "",
        "PEM certificates that vouch for servers; empty uses the system's.",
        aliases=("tls.client.trustCertPath",),
    )
    tls_client_auth_server: bool = setting(
        "tlsClientAuthServer",
        True,
        "Check the server's certificate and name. RocketMQ's default is false: set it so only for self-signed tests.",
        aliases=("tls.client.authServer",),
    )
    tls_client_cert_path: str = setting(
        "tlsClientCertPath", "", "PEM certificate chain we show to servers.", aliases=("tls.client.certPath",)
    )
    tls_client_key_path: str = setting(
        "tlsClientKeyPath", "", "PEM private key of it.", aliases=("tls.client.keyPath",)
    )

    acl_enable: bool = setting("aclEnable", False, "Refuse requests without a valid signature and permission.")
    acl_file: str = setting(
        "aclFile",
        "",
        "Accounts and permissions: a plain_acl.yml as RocketMQ 4.x writes it; needed when aclEnable is true.",
    )

    acl_classic_signatures: bool = setting(
        "aclClassicSignatures",
        True,
        "Accept RocketMQ's own signatures (HMAC-SHA1), which whoever sees a request can repeat. Set it to false where "
        "every client is TandemQ's. Requests of TandemQ's own always need the stronger kind.",
    )
    authentication_enabled: bool = setting(
        "authenticationEnabled",
        False,
        "RocketMQ 5's access control: refuse requests without a valid signature of a user. Users are made at run time "
        "(mqadmin createUser).",
    )
    authorization_enabled: bool = setting(
        "authorizationEnabled",
        False,
        "Normal users may do what their policies allow (mqadmin createAcl); false lets every user do everything.",
    )
    init_authentication_user: str = setting(
        "initAuthenticationUser",
        "",
        'Super user to begin with: {"username":"…","password":"…"}. Made at the start unless it exists.',
    )
    inner_client_credentials: str = setting(
        "innerClientAuthenticationCredentials",
        "",
        'RocketMQ 5\'s form of accessKey and secretKey: {"accessKey":"…","secretKey":"…"}. Made a super user at the '
        "start unless it exists.",
    )
    requests_per_account_max: int = setting(
        "requestsPerAccountMax",
        0,
        "Requests that one account, unless it is an admin, may make per second; more are answered SYSTEM_BUSY. "
        "0 = any.",
        minimum=0,
        maximum=10_000_000,
    )
    bytes_per_account_max: int = setting(
        "bytesPerAccountMax",
        0,
        "Bytes of requests that one account, unless it is an admin, may send per second; more is answered SYSTEM_BUSY. "
        "0 = any.",
        unit="bytes",
        minimum=0,
        maximum=1 << 40,
    )
    audit_log_path: str = setting(
        "auditLogPath",
        "",
        "File for the audit log: who did what, from where, with which outcome. "
        "Empty writes it among the other log lines.",
    )
    turn_log_ms: int = setting(
        "turnLogMillis",
        0,
        "For debugging: logs what holds the event loop longer than this, with the functions it is in. 0 = off.",
        unit="ms",
        minimum=0,
        maximum=60_000,
    )

    access_key: str = setting(
        "accessKey", "", "Account with which a server signs its own requests (to name servers, to its master)."
    )
    secret_key: str = setting("secretKey", "", "Secret key of that account.")

    def __post_init__(self) -> None:
        check(self)
        if self.write_buffer_low >= self.write_buffer_high:
            raise ConfigError(
                f"writeBufferLowWaterMark={self.write_buffer_low}: must be below "
                f"writeBufferHighWaterMark={self.write_buffer_high}"
            )
        if self.header_size_max >= self.frame_size_max:
            raise ConfigError(
                f"headerMaxLength={self.header_size_max}: must be below frameMaxLength={self.frame_size_max}"
            )
        if self.tls_mode is not TlsMode.DISABLED and not (self.tls_cert_path and self.tls_key_path):
            raise ConfigError(
                f"tlsMode={self.tls_mode.value}: needs tlsServerCertPath and tlsServerKeyPath (PEM files)"
            )
        if self.acl_enable and not self.acl_file:
            raise ConfigError("aclEnable=true: needs aclFile, the path of a plain_acl.yml")
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError("authorizationEnabled=true: needs authenticationEnabled=true, or names prove nothing")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey and secretKey: give both or none")
        if self.tls_need_client_auth and not self.tls_trust_path:
            raise ConfigError("tlsServerNeedClientAuth=true: needs tlsServerTrustCertPath, the authorities to accept")
