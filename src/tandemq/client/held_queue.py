"""One queue that a consumer holds: the state of its messages, the task that fetches them, the calls that have some."""

import asyncio

from tandemq.client.fetcher import QueueFetcher
from tandemq.client.process_queue import ProcessQueue
from tandemq.model.topic import QueueRef


class HeldQueue:
    """Made when a queue is won, dropped when it is given up; a queue that is won again gets a new one."""

    def __init__(self, queue: QueueRef, state: ProcessQueue) -> None:
        self.queue = queue
        self.state = state
        self.leaving = False
        """It is to be given up: no call begins any more, and it goes when the last one has ended."""
        self.moving = False
        """It is to go on at another offset, when its last call has ended."""
        self._fetcher: QueueFetcher | None = None
        self._fetching: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether another call may begin."""
        return not (self.leaving or self.moving or self.state.dropped)

    def fetch_with(self, fetcher: QueueFetcher) -> None:
        """Starts fetching."""
        self._fetcher = fetcher
        self.fetch_anew()

    def fetch_anew(self) -> None:
        """Gives up the pull that waits at the broker and asks again, with the current subscription."""
        self.stop_fetching()
        if self._fetcher is not None and not self.state.dropped:
            self._fetching = asyncio.get_running_loop().create_task(
                self._fetcher.run(), name=f"tandemq-pull-{self.queue.topic}-{self.queue.queue_id}"
            )

    def stop_fetching(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            self._fetching = None

    def wake(self) -> None:
        """Wakes the fetcher, because there may be room, a lock, or no pause any more."""
        if self._fetcher is not None:
            self._fetcher.wake()

    def drop(self) -> None:
        """Ends it: from now on nothing touches the queue's offset through this object, and its cache is freed."""
        self.state.drop()
        self.stop_fetching()
