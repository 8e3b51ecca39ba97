"""Cheap checks, when a store is opened, that its views reach as far back as its log: what no end of a file tells.

Queue files and index files that other hands removed or emptied in the beginning or in the middle are found by a few
reads for each file. `verify` reads everything.
"""

from collections.abc import Iterable
from itertools import islice, pairwise

from tandemq.formats.derived import index_keys, is_in_index
from tandemq.formats.key_hash import TopicHasher
from tandemq.formats.queue_starts import QueueStarts
from tandemq.formats.record import tail_bounds
from tandemq.model.message import StoredMessage
from tandemq.store.commit_log import CommitLog
from tandemq.store.key_index import KeyIndex
from tandemq.store.queues import QueueTable

RECORDS_LOOKED_AT = 256
"""So many records are searched for one with a key; nearly every message has one."""


def queues_problem(queues: QueueTable, starts: QueueStarts | None) -> str | None:
    """Returns what shows that queue files are missing or empty, None if nothing does."""
    for key, queue in queues.table.items():
        where = f"consumequeue/{queue.topic}/{queue.queue_id}"
        if starts is not None and queue.begin > starts.begin.get(key, 0):
            return f"{where}: its files begin at entry {queue.begin}, not at {starts.begin.get(key, 0)}"
        if (hole := queue.hole()) is not None:
            return f"{where}: entry {hole} is empty"
    return None


def index_problem(index: KeyIndex, log: CommitLog, stop: int) -> str | None:
    """Returns what shows that index files for messages below `stop` are missing or empty, None if nothing does."""
    if (first := _with_key(log, log.messages(log.first_offset, stop))) is not None:
        message, key = first
        found = index.find(TopicHasher(message.topic).key_hash(key), 0, message.store_timestamp + 1000)
        if message.physical_offset not in found:
            return f"the message at {message.physical_offset}, the first with a key, is not in the index"
    for name, following in pairwise(index.names):
        file = index.file(name)
        if file.count < file.entries_max:
            return f"index/{name} has {file.count} of {file.entries_max} entries although another follows it"
        end, begin = file.end_physical, index.file(following).begin_physical
        # The keys of one message may be spread over two files.
        if end >= log.first_offset and begin != end and begin != _key_after(log, end, stop):
            return f"index/{name} ends with the message at {end}, index/{following} begins with the one at {begin}"
    return None


def _key_after(log: CommitLog, physical_offset: int, stop: int) -> int:
    """Returns where the next message with a key lies, -1 if none is near."""
    messages = log.messages(physical_offset, stop)
    next(messages, None)
    found = _with_key(log, messages)
    return -1 if found is None else found[0].physical_offset


def _with_key(log: CommitLog, messages: Iterable[StoredMessage]) -> tuple[StoredMessage, bytes] | None:
    """Returns the first of some messages that has a key, and the key."""
    for message in islice(messages, RECORDS_LOOKED_AT):
        record = log.slice(message.physical_offset, message.size)
        start, end = tail_bounds(record, 0)[2:]
        if is_in_index(message.sys_flag) and (key := next(index_keys(record[start:end].tobytes()), b"")):
            return message, key
    return None
