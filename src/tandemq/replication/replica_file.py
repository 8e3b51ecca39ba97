"""`replica.json`: what a node must remember about itself across a crash, written durably before it acts on it.

One small file beside the log, replaced whole: identity, epoch history, promise, group members, in-sync set.  A CRC over
the rest catches a damaged file; a node that can't read its own must not guess, so it refuses to start.
"""

from pathlib import Path
from typing import Final

import msgspec

from tandemq.codec.ha_register import Register
from tandemq.codec.ha_session import EpochItem, Number
from tandemq.errors import CorruptLog
from tandemq.formats.crc import crc32
from tandemq.replication.epochs import Promise, ReplicaRecord, from_items, to_items
from tandemq.store.disk import Disk

FILE_NAME: Final = "replica.json"


class _Content(msgspec.Struct):
    replica: str
    history: list[EpochItem]
    promised_number: Number
    promised_id: str
    members: list[str]
    in_sync: list[str]
    confirmed: Number
    reigning: bool
    follows: str = ""
    complete: bool = True
    blind_from: int = -1
    alone_from: int = -1
    before_number: Number | None = None
    before_id: str = ""
    campaigned: Number = 0
    register: Register | None = None
    role: str = ""
    lacks: tuple[Number, Number] | None = None
    copying_to: int = -1


class _Sealed(msgspec.Struct):
    content: msgspec.Raw
    crc: int


def load(disk: Disk, root: Path) -> ReplicaRecord | None:
    """Returns the record of this store, None if it never had one; raises CorruptLog if it is damaged."""
    path = root / FILE_NAME
    return None if disk.file_size(path) is None else decode(disk.read_file(path), str(path))


def decode(data: bytes, path: str) -> ReplicaRecord:
    """Returns the record in a file's content; raises CorruptLog that names the file, if it is damaged."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        if crc32(bytes(sealed.content)) != sealed.crc:
            raise ValueError("checksum")
        content = msgspec.json.decode(bytes(sealed.content), type=_Content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise CorruptLog(
            f"{path} is damaged ({error}): this node no longer knows its history; "
            "start it as a slave with an empty store directory, so that it copies the log again"
        ) from error
    return ReplicaRecord(
        replica=content.replica,
        history=from_items(content.history),
        promise=Promise(content.promised_number, content.promised_id),
        members=frozenset(content.members),
        in_sync=frozenset(content.in_sync),
        confirmed=content.confirmed,
        reigning=content.reigning,
        follows=content.follows,
        complete=content.complete,
        blind_from=content.blind_from,
        alone_from=content.alone_from,
        before=None if content.before_number is None else Promise(content.before_number, content.before_id),
        campaigned=content.campaigned,
        register=content.register,
        role=content.role,
        lacks=content.lacks,
        copying_to=content.copying_to,
    )


def save(disk: Disk, root: Path, record: ReplicaRecord) -> None:
    """Saves the record, durably when it returns."""
    disk.replace_file(root / FILE_NAME, encode(record))


def encode(record: ReplicaRecord) -> bytes:
    """Returns the content of the file."""
    content = _Content(
        replica=record.replica,
        history=to_items(record.history),
        promised_number=record.promise.number,
        promised_id=record.promise.id,
        members=sorted(record.members),
        in_sync=sorted(record.in_sync),
        confirmed=record.confirmed,
        reigning=record.reigning,
        follows=record.follows,
        complete=record.complete,
        blind_from=record.blind_from,
        alone_from=record.alone_from,
        before_number=None if record.before is None else record.before.number,
        before_id="" if record.before is None else record.before.id,
        campaigned=record.campaigned,
        register=record.register,
        role=record.role,
        lacks=record.lacks,
        copying_to=record.copying_to,
    )
    text = msgspec.json.encode(content)
    return msgspec.json.encode(_Sealed(msgspec.Raw(text), crc32(text)))
