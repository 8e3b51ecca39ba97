"""The process that test_store_kill9 kills: appends for ever, prints the number of each message that is durable."""

import os
import sys
from pathlib import Path
from random import Random

from tandemq.store.config import FlushDiskType, StoreConfig
from tandemq.store.message_store import MessageStore

CONFIG = StoreConfig(
    commit_log_segment_size=65536,
    consume_queue_segment_size=4000,
    index_slots=100,
    index_entries=400,
    message_size_max=8192,
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
    flush_views_interval_ms=20,
)


def main(root: Path, seed: int) -> None:
    store = MessageStore.open(root, CONFIG)
    store.start()
    random = Random(seed)
    number = sum(store.reader.queue_range("topic", queue_id)[1] for queue_id in range(3))
    while True:
        body = number.to_bytes(8, "big") * random.randrange(1, 200)
        key = b"KEYS\x01key-%09d\x02" % number
        done = store.append("topic", number % 3, 0, 0, 1, bytes(8), 0, 0, body, key)

        def acknowledge(error: Exception | None, line: bytes = b"%d\n" % number) -> None:
            if error is None:
                os.write(1, line)

        store.when_flushed(done.physical_offset + done.size, acknowledge)
        store.dispatch()
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
