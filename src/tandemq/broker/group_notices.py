"""Tells the members of consumer groups that their group changed (NOTIFY_CONSUMER_IDS_CHANGED), merged and in slices.

The first change of a group is told at once; those that follow within MERGED_S are told together. So a thousand clients
that join one group get a few notices each instead of a thousand, and the frame is encoded once. A large group is told
in slices, one a turn of the event loop, so that nobody else waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice

from tandemq.codec.codes import RequestCode
from tandemq.codec.command import ONEWAY_FLAG, Command, encode_request
from tandemq.remoting.connection import Connection

MERGED_S = 0.1
"""Members ask for the new list and rebalance after each notice: more than ten a second help nobody."""
SLICE = 256
"""Members that are told in one turn of the loop: a few milliseconds of writing."""


class GroupNotices:
    """`members` gives the connections of a group that are to be told now; none for a group that is gone."""

    def __init__(self, members: Callable[[str], Iterable[Connection]]) -> None:
        self._members = members
        self._told: set[str] = set()
        """Groups that were told within the last MERGED_S."""
        self._waiting: dict[str, None] = {}
        """Groups that changed since."""
        self._due: deque[str] = deque()
        """Groups that changed before the last pause was over, still to be told: thousands, when many clients leave."""
        self._is_armed = False

    def changed(self, groups: Iterable[str]) -> None:
        """Tells these groups, now or a moment later."""
        for group in groups:
            if group in self._told:
                self._waiting[group] = None
            else:
                self._tell(group)

    def _tell(self, group: str) -> int:
        """Tells a group. Returns how many notices that were in this turn, at least one."""
        self._told.add(group)
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_later(MERGED_S, self._pause_over)
        command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, flag=ONEWAY_FLAG)
        members = list(self._members(group))
        self._send(encode_request(command), members, 0)
        return max(1, min(len(members), SLICE))

    def _send(self, frame: bytes, connections: list[Connection], done: int) -> None:
        for connection in islice(connections, done, done + SLICE):
            if connection.is_open:
                connection.send(frame)
        if done + SLICE < len(connections):
            asyncio.get_running_loop().call_soon(self._send, frame, connections, done + SLICE)

    def _pause_over(self) -> None:
        self._is_armed = False
        waiting, self._waiting = self._waiting, {}
        self._told.clear()
        self._told.update(waiting)
        is_under_way = bool(self._due)
        self._due.extend(waiting)
        if not is_under_way:
            self._tell_due()

    def _tell_due(self) -> None:
        told = 0
        while self._due and told < SLICE:
            told += self._tell(self._due.popleft())
        if self._due:
            asyncio.get_running_loop().call_soon(self._tell_due)
