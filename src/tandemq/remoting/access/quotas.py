"""What one account may use per second: requests and bytes. Pure; `now` (monotonic seconds) is an argument.

Each account has one second's worth to begin with and gets it back evenly. A request is let through as long as there is
anything left, so one larger than a second's worth is not refused for ever: the account waits longer afterwards.
"""

from tandemq.codec.codes import ResponseCode
from tandemq.errors import ReplyError

ACCOUNTS_MAX = 20_000
"""Accounts remembered; there are no more than this many users. Beyond it the table starts afresh."""


class Quotas:
    """The limits of a server, the same for every account; 0 = no limit."""

    __slots__ = ("_bytes_per_second", "_left", "_requests_per_second")

    def __init__(self, requests_per_second: int, bytes_per_second: int) -> None:
        self._requests_per_second = requests_per_second
        self._bytes_per_second = bytes_per_second
        self._left: dict[str, list[float]] = {}
        """account -> [requests left, bytes left, as of]"""

    def take(self, account: str, size: int, now: float) -> None:
        """Takes one request of `size` bytes; ReplyError(SYSTEM_BUSY) if nothing is left."""
        requests_max, bytes_max = self._requests_per_second, self._bytes_per_second
        state = self._left.get(account)
        if state is None:
            if len(self._left) >= ACCOUNTS_MAX:
                self._left.clear()
            state = self._left[account] = [float(requests_max), float(bytes_max), now]
        passed = max(0.0, now - state[2])
        state[0] = min(requests_max, state[0] + passed * requests_max)
        state[1] = min(bytes_max, state[1] + passed * bytes_max)
        state[2] = now
        if requests_max and state[0] < 1:
            raise _busy(account, "requests", requests_max, "requestsPerAccountMax")
        if bytes_max and state[1] <= 0:
            raise _busy(account, "bytes", bytes_max, "bytesPerAccountMax")
        state[0] -= 1
        state[1] -= size


def _busy(account: str, what: str, limit: int, option: str) -> ReplyError:
    return ReplyError(
        ResponseCode.SYSTEM_BUSY,
        f"[QUOTA]system busy, start flow control for a while: {account!r} may use {limit} {what} per second ({option})",
    )
