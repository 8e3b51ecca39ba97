"""RocketMQ's ACL signature, the client's side. Pure.

Signature = Base64(HMAC-SHA1(secret key, values of all ext fields in order of their names, then the body)).
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping


def signed(
    ext: Mapping[str, str], body: bytes | memoryview, access_key: str, secret_key: str, token: str = ""
) -> dict[str, str]:
    """The ext fields with AccessKey, SecurityToken (if any) and Signature."""
    fields = {**ext, "AccessKey": access_key}
    if token:
        fields["SecurityToken"] = token
    digest = hmac.new(secret_key.encode(), digestmod=hashlib.sha1)
    digest.update("".join(fields[name] for name in sorted(fields)).encode())
    digest.update(body)
    fields["Signature"] = base64.b64encode(digest.digest()).decode()
    return fields
