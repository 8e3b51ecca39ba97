"""When routes are asked for again: at their interval, and at once when something says that they are stale. Pure.

A lost connection or a master that calls itself a slave means that brokers move. The name servers may learn of it a
little later than we do, so the question is repeated with growing pauses for a while.
"""

ALARM_PAUSES_S = (0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Waits before the questions after an alarm; the first one is asked at once."""


class RefreshTimes:
    """The times at which routes are asked for."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._asked = len(ALARM_PAUSES_S)
        """Questions asked since the last alarm."""

    def alarm(self) -> bool:
        """Starts the quick questions; returns whether the next one is due at once.

        An alarm during the quick questions does not start them over: a broker that stays away must not keep every
        client asking without a pause.
        """
        if self._asked < len(ALARM_PAUSES_S):
            return False
        self._asked = 0
        return True

    def wait_s(self) -> float:
        """Returns how long to wait before the next question."""
        if self._asked < len(ALARM_PAUSES_S):
            return min(ALARM_PAUSES_S[self._asked], self._interval_s)
        return self._interval_s

    def asked(self) -> None:
        """Counts a question."""
        self._asked = min(self._asked + 1, len(ALARM_PAUSES_S))
