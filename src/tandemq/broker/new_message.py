"""A message on its way into the log: all that the store needs to know of it, in one record.

Services and the rare kinds of sends fill one and hand it to the writer. The common send passes the same values to the
store one by one: an object for each message would cost it measurably (`handlers/send.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandemq.formats.envelope import Enveloped
from tandemq.model.message import StoredMessage


@dataclass(slots=True, kw_only=True)
class NewMessage:
    """What becomes a record; offsets, store time and checksum are the store's to add."""

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: Mapping[str, str]
    born_timestamp: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    """For a committed transactional message: the physical offset of its half."""
    is_copy: bool = False
    """Whether the log took it before: the limits for clients do not hold for it."""

    @classmethod
    def copy_of(cls, stored: StoredMessage, place: Enveloped) -> "NewMessage":
        """Returns a stored message again, for another place and with the properties it has there."""
        return cls(
            topic=place.topic,
            queue_id=place.queue_id,
            body=stored.body,
            properties=place.properties,
            born_timestamp=stored.born_timestamp,
            born_host=stored.born_host,
            flag=stored.flag,
            sys_flag=place.sys_flag,
            reconsume_times=stored.reconsume_times,
            prepared_transaction_offset=stored.prepared_transaction_offset,
            is_copy=True,
        )

    @property
    def place(self) -> Enveloped:
        """Returns where the message goes now, for the functions that wrap it for a system topic."""
        return Enveloped(self.topic, self.queue_id, self.sys_flag, dict(self.properties))

    def move(self, place: Enveloped) -> None:
        """Changes where the message goes, with the properties it has there."""
        self.topic, self.queue_id, self.sys_flag, self.properties = place
