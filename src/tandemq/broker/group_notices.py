"""Tells the members of consumer groups that their group changed (NOTIFY_CONSUMER_IDS_CHANGED), merged and in slices.

The first change of a group is told at once; those that follow within MERGED_S are told together. So a thousand clients
that join one group get a few notices each instead of a thousand, and the frame is encoded once. A large group is told
in slices, one a turn of the event loop, so that nobody else waits for it; it is told after a pause and rests longer.
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
SLICE = 64
"""Members that are told in one turn of the loop: a system call each, which takes 10 to 100 µs."""
LARGE = 1000
"""A group of so many members waits with its first change, too, for others to be told with it."""
MEMBERS_PER_PAUSE = 500
"""A pause lasts longer, by MERGED_S for each of so many members: to tell 5,000 takes 50 ms and more."""


class GroupNotices:
    """`members` gives the connections of a group that are to be told now; none for a group that is gone."""

    def __init__(self, members: Callable[[str], Iterable[Connection]]) -> None:
        self._members = members
        self._resting: dict[str, int] = {}
        """Groups that were told lately: how many times MERGED_S go by until they may be told again."""
        self._waiting: dict[str, None] = {}
        """Groups that changed since."""
        self._due: deque[str] = deque()
        """Groups whose pause is over, still to be told: thousands, when many clients leave."""
        self._is_armed = False

    def changed(self, groups: Iterable[str]) -> None:
        """Tells these groups, now or a moment later."""
        for group in groups:
            if group in self._resting:
                self._waiting[group] = None
                continue
            members = list(self._members(group))
            if len(members) < LARGE:
                self._tell(group, members)
            else:
                self._waiting[group] = None
                self._rest(group, 1)

    def _rest(self, group: str, pauses: int) -> None:
        self._resting[group] = pauses
        if not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_later(MERGED_S, self._pause_over)

    def _tell(self, group: str, members: list[Connection]) -> int:
        """Tells a group. Returns how many notices that were in this turn, at least one."""
        self._rest(group, max(1, len(members) // MEMBERS_PER_PAUSE))
        command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}, flag=ONEWAY_FLAG)
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
        is_under_way = bool(self._due)
        resting, self._resting = self._resting, {}
        for group, pauses in resting.items():
            if pauses > 1:
                self._rest(group, pauses - 1)
            elif group in self._waiting:
                del self._waiting[group]
                self._due.append(group)
                self._rest(group, 1)
        if not is_under_way:
            self._tell_due()

    def _tell_due(self) -> None:
        told = 0
        while self._due and told < SLICE:
            group = self._due.popleft()
            told += self._tell(group, list(self._members(group)))
        if self._due:
            asyncio.get_running_loop().call_soon(self._tell_due)
