"""RocketMQ's request signature.

content   = the values of all ext fields but `Signature`, in order of their names, as UTF-8, then the body
Signature = base64(HMAC-SHA1(secret key, content)); `AccessKey` is one of the signed fields

Peers differ in what they leave out: Java up to 4.9.3 skips `_UNIQUE_KEY_QUERY`, Go skips `SecurityToken`.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


def signature(ext: Mapping[str, str], body: bytes | memoryview, secret_key: str, left_out: tuple[str, ...] = ()) -> str:
    """The signature of a request as its ext fields stand."""
    names = sorted(name for name in ext if name != SIGNATURE and name not in left_out)
    mac = hmac.new(secret_key.encode(), "".join(ext[name] for name in names).encode(), "sha1")
    mac.update(body)
    return b64encode(mac.digest()).decode()


def sign(
    ext: Mapping[str, str], body: bytes | memoryview, access_key: str, secret_key: str, security_token: str = ""
) -> dict[str, str]:
    """The ext fields with access key and signature added (client side)."""
    signed = {**ext, ACCESS_KEY: access_key}
    if security_token:
        signed[SECURITY_TOKEN] = security_token
    signed[SIGNATURE] = signature(signed, body, secret_key)
    return signed


def is_signed_by(ext: Mapping[str, str], body: bytes | memoryview, secret_key: str) -> bool:
    """Whether `Signature` is what a holder of the secret key would have sent, in any client's way of signing."""
    given = ext.get(SIGNATURE, "").encode()
    variants = [()] + [(name,) for name in (_UNIQUE_KEY_QUERY, SECURITY_TOKEN) if name in ext]
    return any(hmac.compare_digest(given, signature(ext, body, secret_key, out).encode()) for out in variants)
