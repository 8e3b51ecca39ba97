"""Who may see and do what through the console.

The console holds no rights of its own. Without access control on the cluster everybody who reaches it sees everything,
and acts are taken from this machine only. With it, a person signs in with an account of the brokers; what is asked and
done for them is signed by that account, and the brokers decide.

Against other web sites: every act carries a token that only our own pages know, cookies are never sent by foreign
sites, and a request must name us by an address or name of ours, so that a rebound DNS name gets nothing.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

COOKIE = "tandemq_console"
SESSIONS_MAX = 64
"""Signed-in people at a time; the one unused for longest makes room."""
IDLE_SECONDS = 8 * 3600.0
"""A session that is not used for a working day ends."""
TOKEN_FIELD = "csrf"
TOKEN_HEADER = "x-csrf-token"


@dataclass(slots=True)
class Visitor:
    """Somebody's browser."""

    key: str
    """Random; what its cookie holds."""
    account: str
    """The account signed in with."""
    secret: str = field(default="", repr=False)
    used: float = 0.0


class Sessions:
    """Who is signed in, bounded, in memory only: a restart signs everybody out.

    Without access control a cookie is only what the token of acts is bound to, and nothing is kept for it.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._visitors: OrderedDict[str, Visitor] = OrderedDict()
        self._token_key = secrets.token_bytes(32)

    def find(self, key: str) -> Visitor | None:
        """Returns the visitor of a cookie, None if it ended or never was."""
        visitor = self._visitors.get(key)
        if visitor is None:
            return None
        if self._now() - visitor.used > IDLE_SECONDS:
            del self._visitors[key]
            return None
        visitor.used = self._now()
        self._visitors.move_to_end(key)
        return visitor

    def open(self, account: str, secret: str) -> tuple[Visitor, Visitor | None]:
        """Returns a new visitor, and the one that made room for it."""
        visitor = Visitor(secrets.token_urlsafe(32), account, secret, self._now())
        self._visitors[visitor.key] = visitor
        gone = self._visitors.popitem(last=False)[1] if len(self._visitors) > SESSIONS_MAX else None
        return visitor, gone

    def close(self, key: str) -> None:
        self._visitors.pop(key, None)

    def is_used(self, account: str, secret: str) -> bool:
        """Returns whether somebody is signed in with this account."""
        return any((visitor.account, visitor.secret) == (account, secret) for visitor in self._visitors.values())

    @staticmethod
    def new_key() -> str:
        """Returns a cookie for somebody who need not sign in."""
        return secrets.token_urlsafe(32)

    def token(self, key: str) -> str:
        """Returns what the acts of a visitor must carry."""
        return hmac.new(self._token_key, key.encode(), hashlib.sha256).hexdigest()

    def has_token(self, key: str, given: str) -> bool:
        return bool(key) and hmac.compare_digest(self.token(key).encode(), given.encode("utf-8", "replace"))


def is_loopback(host: str) -> bool:
    """Returns whether an address is this machine's own."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def host_is_ours(header: str, listen_host: str) -> bool:
    """Returns whether the Host header names us by address, as localhost, or as we were told to listen.

    A foreign name that was made to point here (DNS rebinding) is none of these.
    """
    name = header.strip()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name.lower() in ("localhost", listen_host.lower()):
        return bool(name)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_cross_site(headers: Mapping[str, str]) -> bool:
    """Returns whether a browser says that another site made the request."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != headers.get("host", "")


def act_problem(
    *, controlled: bool, signed_in: bool, peer: str, has_token: bool, headers: Mapping[str, str]
) -> str | None:
    """Returns why an act is refused, in a sentence that says what to do; None if it may be tried."""
    if is_cross_site(headers):
        return "another web site sent this; open the console itself and do it there"
    if not has_token:
        return "the page was too old or not ours: reload it and do it again"
    if controlled:
        return None if signed_in else "sign in first"
    if not is_loopback(peer):
        return (
            f"without access control acts are taken from the console's own machine only, and you come from {peer}: "
            "open it there (ssh -L 8088:127.0.0.1:8088 HOST), or turn aclEnable on"
        )
    return None
