"""What others may read of `replica.json`, the file in which a node keeps its place in its group.

The file is `{"content": {…, "confirmed": offset, …}, "crc": CRC-32 of the content's bytes}`. Only replication writes it
and reads all of it; readers of a store's files want to know up to which offset the replicas agree for good.
"""

import json


def confirmed_offset(data: bytes) -> int | None:
    """Returns the confirmed offset that the file holds, or None if it is not such a file."""
    try:
        return int(json.loads(data)["content"].get("confirmed", 0))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
