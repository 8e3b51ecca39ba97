"""Reads a whole backup and says what of it is not what it was, changing nothing."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tandemq.backup import manifest as manifests
from tandemq.backup.manifest import FilePart, Manifest, SegmentPart
from tandemq.backup.take import read_file, read_manifest
from tandemq.backup.target import Target
from tandemq.errors import StoreError

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Checked:
    """What a pass over a backup found."""

    manifest: Manifest
    problems: list[str] = field(default_factory=list)


def check(target: Target, progress: Progress = lambda done, total: None) -> Checked:
    """Reads every file that a restore would read. Raises StoreError if there is no backup at all."""
    found = read_manifest(target)
    if found is None:
        raise StoreError(f"there is no backup: {target.where(manifests.NAME)} is missing")
    checked, done = Checked(found), 0
    parts: list[FilePart | SegmentPart] = [*found.segments, *found.files]
    total = sum(part.size for part in parts)
    for part in parts:
        try:
            deque(read_file(target, part), maxlen=0)
        except StoreError as error:
            checked.problems.append(str(error))
        done += part.size
        progress(done, total)
    return checked
