"""Signatures of requests: RocketMQ's own, and a stronger one between parts of TandemQ.

**Classic**, as every RocketMQ client signs. `AccessKey` is one of the signed fields.

    content   = the values of all ext fields but `Signature`, in order of their names, as UTF-8, then the body
    Signature = base64(HMAC-SHA1(secret key, content))

Names, boundaries between values and the request code are not covered, and nothing tells a repeated request from the
first. Peers differ in what they leave out: Java up to 4.9.3 skips `_UNIQUE_KEY_QUERY`, Go skips `SecurityToken`.

**Session**, between our own parts. The server gives every connection a random challenge; the client signs each request
with it, with its time and with a number that only grows, so that a captured request is worth nothing: not on the same
connection, not on another one, not at another server.

    content      = b"tandemq request 1\\0", then, each with its size in 4 bytes before it: the challenge; code, version,
                   opaque and flag in 4 bytes each; name and value of every ext field but `Signature256`, in order of
                   their names, as UTF-8; the body
    Signature256 = base64(HMAC-SHA256(secret key, content))

`SignTime` is in milliseconds of the server's clock, which the client learned with the challenge; `SignNonce` counts.
"""

import hashlib
import hmac
import struct
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tandemq.codec.command import Command
from tandemq.codec.prepared_hmac import PreparedHmac
from tandemq.errors import MalformedBody

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
SIGNATURE_256 = "Signature256"
SIGN_TIME = "SignTime"
SIGN_NONCE = "SignNonce"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"

SIGNATURE_FIELDS = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, SIGNATURE_256, SIGN_TIME, SIGN_NONCE})
"""Ext fields that prove who made a request. They go no further than the server that checks them."""

CHALLENGE, SERVER_TIME = "challenge", "serverTime"
"""Ext fields of the answer to a request for a challenge: hexadecimal, and milliseconds."""
CHALLENGE_SIZE = 16
SIGN_AGE_MAX_MS = 300_000
"""How long after its time a request of a session may arrive."""

_DOMAIN = b"tandemq request 1\0"
_SIZE = struct.Struct(">I")
_FIXED = struct.Struct(">Iiiii")


class Credentials(NamedTuple):
    """An account as a client knows it."""

    access_key: str
    secret_key: str
    security_token: str = ""


class SigningKey:
    """The secret of one account, prepared once."""

    __slots__ = ("_sha1", "_sha256")

    def __init__(self, secret_key: str) -> None:
        secret = secret_key.encode()
        self._sha1 = PreparedHmac(secret, hashlib.sha1)
        self._sha256 = PreparedHmac(secret)

    def __repr__(self) -> str:
        return "SigningKey(***)"

    def classic(self, ext: Mapping[str, str], body: bytes | memoryview, left_out: tuple[str, ...] = ()) -> bytes:
        """Returns the classic signature of a request as its ext fields stand."""
        text = "".join([ext[name] for name in sorted(ext) if name != SIGNATURE and name not in left_out])
        return b2a_base64(self._sha1(text.encode(), body), newline=False)

    def has_signed(self, ext: Mapping[str, str], body: bytes | memoryview) -> bool:
        """Returns whether `Signature` is what a holder of the secret would have sent, in any client's way."""
        given = ext.get(SIGNATURE, "").encode()
        if hmac.compare_digest(given, self.classic(ext, body)):
            return True
        variants = [(name,) for name in (_UNIQUE_KEY_QUERY, SECURITY_TOKEN) if name in ext]
        return any(hmac.compare_digest(given, self.classic(ext, body, out)) for out in variants)

    def session(self, command: Command, challenge: bytes) -> bytes:
        """Returns the signature of a request on the connection that this challenge was given to."""
        size = _SIZE.pack
        fixed = _FIXED.pack(16, command.code, command.version, command.opaque, command.flag)
        parts = [_DOMAIN, size(len(challenge)), challenge, fixed]
        for name, value in sorted(command.ext.items()):
            if name != SIGNATURE_256:
                name_bytes, value_bytes = name.encode(), value.encode()
                parts += (size(len(name_bytes)), name_bytes, size(len(value_bytes)), value_bytes)
        parts.append(size(len(command.body)))
        return b2a_base64(self._sha256(b"".join(parts), command.body), newline=False)

    def has_signed_session(self, command: Command, challenge: bytes) -> bool:
        """Returns whether `Signature256` is that of a holder of the secret on this connection."""
        given = command.ext.get(SIGNATURE_256, "").encode()
        return hmac.compare_digest(given, self.session(command, challenge))


def sign(
    ext: Mapping[str, str], body: bytes | memoryview, access_key: str, secret_key: str, security_token: str = ""
) -> dict[str, str]:
    """Returns the ext fields with access key and classic signature added."""
    signed = _with_account(ext, Credentials(access_key, secret_key, security_token))
    signed[SIGNATURE] = SigningKey(secret_key).classic(signed, body).decode()
    return signed


class ClassicSigner:
    """Signs requests to a server that is not ours."""

    __slots__ = ("_credentials", "_key")

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._key = SigningKey(credentials.secret_key)

    def sign(self, command: Command) -> None:
        """Adds access key and signature."""
        signed = _with_account(command.ext, self._credentials)
        signed[SIGNATURE] = self._key.classic(signed, command.body).decode()
        command.ext = signed


class SessionSigner:
    """Signs the requests of one connection, in the order in which they leave."""

    __slots__ = ("_challenge", "_count", "_credentials", "_key", "_now_ms", "_time_offset_ms")

    def __init__(
        self, credentials: Credentials, challenge: bytes, server_time_ms: int, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` reads a clock that never jumps; `server_time_ms` is the server's time at this moment."""
        self._credentials = credentials
        self._challenge = challenge
        self._key = SigningKey(credentials.secret_key)
        self._now_ms = now_ms
        self._time_offset_ms = server_time_ms - now_ms()
        self._count = 0

    def sign(self, command: Command) -> None:
        """Adds the fields that prove who sends the command. Its opaque must not change afterwards."""
        self._count += 1
        signed = _with_account(command.ext, self._credentials)
        signed[SIGN_TIME] = str(self._now_ms() + self._time_offset_ms)
        signed[SIGN_NONCE] = str(self._count)
        command.ext = signed
        signed[SIGNATURE_256] = self._key.session(command, self._challenge).decode()


def session_signer(credentials: Credentials, answer: Command, now_ms: Callable[[], int]) -> SessionSigner:
    """Returns the signer for the connection on which a server gave this answer; MalformedBody if it has no
    challenge."""
    try:
        challenge = bytes.fromhex(answer.ext[CHALLENGE])
        server_time_ms = int(answer.ext[SERVER_TIME])
    except (KeyError, ValueError):
        raise MalformedBody(f"the answer to a request for a challenge has none: {sorted(answer.ext)[:8]}") from None
    return SessionSigner(credentials, challenge, server_time_ms, now_ms)


class SessionCheck:
    """The server's side of one connection: the challenge it gave, and how far the peer's numbers have come."""

    __slots__ = ("_count", "_started_ms", "_started_wall_ms", "challenge")

    def __init__(self, challenge: bytes, wall_ms: int, now_ms: int) -> None:
        """`now_ms` is of a clock that never jumps; readings of the same one are given to `problem`."""
        self.challenge = challenge
        self._started_ms = now_ms
        self._started_wall_ms = wall_ms
        self._count = 0

    def problem(self, command: Command, key: SigningKey, now_ms: int) -> str | None:
        """Returns why the request does not prove its account, or None. A request passes at most once."""
        if not key.has_signed_session(command, self.challenge):
            return "does not fit: check the secret key"
        try:
            signed_ms, count = int(command.ext[SIGN_TIME]), int(command.ext[SIGN_NONCE])
        except (KeyError, ValueError):
            return f"lacks {SIGN_TIME} or {SIGN_NONCE}"
        if count <= self._count:
            return f"was used before: {SIGN_NONCE}={count}, the last was {self._count}"
        age_ms = self._started_wall_ms + now_ms - self._started_ms - signed_ms
        if abs(age_ms) > SIGN_AGE_MAX_MS:
            return f"was made {age_ms} ms ago, the limit is {SIGN_AGE_MAX_MS} ms either way"
        self._count = count
        return None


def without_signature(ext: Mapping[str, str]) -> dict[str, str]:
    """Returns the ext fields of a request as they may be handed on to somebody else."""
    return {name: value for name, value in ext.items() if name not in SIGNATURE_FIELDS}


def _with_account(ext: Mapping[str, str], credentials: Credentials) -> dict[str, str]:
    signed = without_signature(ext)  # a command that is sent again was signed before
    signed[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        signed[SECURITY_TOKEN] = credentials.security_token
    return signed
