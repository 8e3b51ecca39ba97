"""Makes a store from a backup: the log and the tables as they were, queues, index and checkpoint derived from the log.

The store is a new replica. Its identity, its promises and what it knew of its group stay behind; the history of its log
comes along, so that it can follow a group that still lives, and a group that grows from it can tell old from new.
Everything is made in `DIR/.restore` and moved into place at the end, the log last: a broker refuses a store that has a
checkpoint and no log, so one that was cut short is never taken for a whole one.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tandemq import private
from tandemq.backup.manifest import NAME, Manifest, SegmentPart
from tandemq.backup.take import read_file, read_manifest
from tandemq.backup.target import Target
from tandemq.errors import StoreError
from tandemq.formats import layout
from tandemq.replication import replica_file
from tandemq.replication.epochs import History, Promise, ReplicaRecord
from tandemq.store.config import StoreConfig
from tandemq.store.disk import FileDisk, store_error
from tandemq.store.message_store import MessageStore, StoreStatus

STAGE = ".restore"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Restored:
    manifest: Manifest
    status: StoreStatus
    history: History


def restore(target: Target, root: Path, progress: Progress = lambda done, total: None) -> Restored:
    """Makes the store of the newest backup in `target` under `root`, which must be empty or not there."""
    manifest = read_manifest(target)
    if manifest is None:
        raise StoreError(f"there is no backup: {target.where(NAME)} is missing")
    _check_empty(root)
    stage = root / STAGE
    try:
        private.make_directory(stage / layout.COMMIT_LOG, exist_ok=False)
        done = 0
        for part in manifest.segments:
            _write_segment(target, part, stage / layout.COMMIT_LOG, manifest.segment_size)
            done += part.size
            progress(done, manifest.position - manifest.first_offset)
        for file in manifest.files:
            path = stage / file.path
            private.make_directory(path.parent)
            with open(path, "xb", opener=private.opener) as written:
                written.writelines(read_file(target, file))
        history = _new_replica(stage, manifest.position)
        status = _derive(stage, manifest)
        _move_into_place(stage, root)
    except OSError as error:
        raise store_error(error, error.filename or root) from error
    return Restored(manifest, status, history)


def _check_empty(root: Path) -> None:
    """Removes what an earlier restore left; refuses a directory that holds anything else."""
    names = sorted(os.listdir(root)) if root.is_dir() else []
    if names == [STAGE]:
        shutil.rmtree(root / STAGE)
    elif names:
        raise StoreError(f"{root} is not empty ({', '.join(names[:5])}): give a new directory, or empty this one first")


def _write_segment(target: Target, part: SegmentPart, directory: Path, segment_size: int) -> None:
    with open(directory / layout.segment_name(part.base), "wb", opener=private.opener) as file:
        for piece in read_file(target, part):
            file.write(piece)
        file.truncate(segment_size)
        file.flush()
        os.fsync(file.fileno())


def _new_replica(stage: Path, position: int) -> History:
    """Returns the record of a replica that has no name yet and has promised nothing but what its log shows."""
    disk = FileDisk(1)
    try:
        old = replica_file.load(disk, stage)
        if old is None:
            return History()
        kept = tuple(epoch for epoch in old.history.epochs if epoch.start <= position)
        history = History(kept)
        promise = Promise(history.last.number, history.last.id) if history.last is not None else Promise()
        confirmed = min(old.confirmed, position)
        replica_file.save(disk, stage, ReplicaRecord("", history, promise, confirmed=confirmed))
        return history
    finally:
        disk.close()


def _derive(stage: Path, manifest: Manifest) -> StoreStatus:
    """Opens the log once, which builds queues and index, and closes it cleanly, which writes the checkpoint."""
    config = replace(
        StoreConfig(),
        commit_log_segment_size=manifest.segment_size,
        consume_queue_segment_size=manifest.queue_file_size,
        index_slots=manifest.index_slots,
        index_entries=manifest.index_entries,
        message_delay_level=manifest.delay_levels,
    )
    store = MessageStore.open(stage, config)
    status = store.status()
    store.close()
    if status.appended != manifest.position:
        raise StoreError(
            f"the log in the backup ends at {status.appended}, not at {manifest.position}: the store was damaged when "
            "the backup was taken; `tandemq store verify` of the store tells where"
        )
    return status


def _move_into_place(stage: Path, root: Path) -> None:
    """Moves the checkpoint first and the log last: a broker refuses anything in between by name."""
    names = sorted(os.listdir(stage), key=lambda name: (name == layout.COMMIT_LOG, name != layout.CHECKPOINT))
    for path in sorted(stage.rglob("*")):
        _sync(path)
    for name in names:
        os.rename(stage / name, root / name)
        _sync(root)
    os.rmdir(stage)
    _sync(root)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
