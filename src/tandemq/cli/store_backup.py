"""`tandemq store backup`, `tandemq store restore`, and `tandemq store verify` of a backup."""

from pathlib import Path
from typing import Annotated

import typer

from tandemq.backup.check import check
from tandemq.backup.manifest import NAME
from tandemq.backup.restore import restore as restore_store
from tandemq.backup.take import back_up
from tandemq.backup.target import open_target
from tandemq.cli.render import note, print_json, time_text
from tandemq.cli.store_progress import MEBIBYTE, MebibyteBar
from tandemq.clock import SystemClock
from tandemq.errors import StoreError

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
TargetText = Annotated[
    str,
    typer.Argument(help="Where the backup lies: a directory, or s3://bucket/path (spark extra).", metavar="TARGET"),
]


def backup(
    directory: Annotated[
        Path,
        typer.Argument(help="The store's root, which holds commitlog/ (storePathRootDir).", metavar="DIR"),
    ],
    target: TargetText,
    as_json: Json = False,
) -> None:
    """Back up a store, while its broker runs or not: the log up to one position and the tables that go with it.

    A backup into the same TARGET copies only log files that are new; what the store has deleted goes there, too.
    """
    place = open_target(target)
    try:
        with MebibyteBar("backing up") as step:
            taken = back_up(directory, place, SystemClock(), step)
    finally:
        place.close()
    found = taken.manifest
    if as_json:
        print_json(
            {
                "position": found.position,
                "firstOffset": found.first_offset,
                "takenMs": found.taken,
                "filesCopied": taken.copied,
                "bytesCopied": taken.copied_bytes,
                "filesKept": taken.kept,
                "objectsRemoved": taken.removed,
                "tables": [part.path for part in found.files],
            }
        )
        return
    note(
        f"{target} has the log of {directory}, offsets {found.first_offset} to {found.position}, and "
        f"{len(found.files)} tables: {taken.copied} log files copied ({taken.copied_bytes / MEBIBYTE:,.1f} MiB), "
        f"{taken.kept} were there"
    )


def restore(
    target: TargetText,
    directory: Annotated[
        Path, typer.Argument(help="Where to make the store: a new or empty directory.", metavar="DIR")
    ],
    as_json: Json = False,
) -> None:
    """Make a store from a backup. It is a new replica: start it as a slave of its group, or alone as a new master."""
    place = open_target(target)
    try:
        with MebibyteBar("restoring") as step:
            restored = restore_store(place, directory, step)
    finally:
        place.close()
    found, status, last = restored.manifest, restored.status, restored.history.last
    if as_json:
        print_json(
            {
                "position": found.position,
                "firstOffset": found.first_offset,
                "takenMs": found.taken,
                "queues": status.queues,
                "indexFiles": status.index_files,
                "lastEpoch": last.number if last is not None else 0,
            }
        )
        return
    note(
        f"{directory}: the store of {time_text(found.taken)}, offsets {found.first_offset} to {found.position}, with "
        f"{status.queues} queues and {status.index_files} index files"
    )
    note("it is a new replica: start it as a slave of its group, or, if the group is gone, alone as its master")


def is_backup(place: str) -> bool:
    """Returns whether a place named on the command line is that of a backup, not of a store."""
    return "://" in place or (Path(place) / NAME).is_file()


def verify(target: str, *, mend: bool, as_json: bool) -> None:
    """Checks a backup and prints what was found. Raises Exit(1) if it can't be restored as it is."""
    if mend:
        raise StoreError(f"{target} is a backup, which can't be repaired: take another one, into an empty target")
    place = open_target(target)
    try:
        with MebibyteBar("verifying") as step:
            checked = check(place, step)
    finally:
        place.close()
    found, problems = checked.manifest, checked.problems
    if as_json:
        print_json(
            {"position": found.position, "firstOffset": found.first_offset, "takenMs": found.taken,
             "problems": problems, "ok": not problems}
        )  # fmt: skip
    else:
        note(
            f"backup of {time_text(found.taken)}, offsets {found.first_offset} to {found.position}: "
            f"{len(found.segments)} log files and {len(found.files)} tables"
        )
        for problem in problems:
            note(f"problem  {problem}")
        note(f"{target} can't be restored: take another backup, into an empty target" if problems else "it is whole")
    if problems:
        raise typer.Exit(1)
