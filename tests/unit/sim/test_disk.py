"""The disk of the simulations: what a power cut leaves of names that changed."""

from pathlib import Path

from tandemq.sim.disk import CrashableDisk

ROOT = Path("/store")
QUEUES = ROOT / "consumequeue"


def with_file(disk: CrashableDisk, path: Path) -> None:
    """Makes a file with a durable name."""
    disk.make_directory(path.parent)
    disk.create_file(path, 8)
    disk.sync_directory(path.parent)


def test_a_rename_is_not_repeated_after_its_tree_was_removed_for_good() -> None:
    """A directory came back under its name and was removed with all beside it; then others were made in that place."""
    disk = CrashableDisk()
    with_file(disk, QUEUES / "aside" / "0")
    disk.rename(QUEUES / "aside", QUEUES / "topic")
    disk.remove_tree(QUEUES)
    disk.sync_directory(ROOT)
    with_file(disk, QUEUES / "new")
    assert set(disk.after_crash().files) == {QUEUES / "new"}


def test_a_creation_is_not_repeated_after_its_directory_was_renamed_for_good() -> None:
    """A file whose name was never durable went with its directory; another directory has that path since."""
    disk = CrashableDisk()
    disk.make_directory(QUEUES / "topic")
    disk.create_file(QUEUES / "topic" / "0", 8)
    disk.rename(QUEUES / "topic", QUEUES / "aside")
    disk.sync_directory(QUEUES)
    with_file(disk, QUEUES / "topic" / "1")
    assert set(disk.after_crash().files) == {QUEUES / "topic" / "1"}


def test_a_removal_is_not_repeated_after_the_name_was_given_again() -> None:
    disk = CrashableDisk()
    with_file(disk, QUEUES / "topic" / "0")
    disk.rename(QUEUES / "topic", QUEUES / "aside")
    with_file(disk, QUEUES / "topic" / "0")
    disk.sync_directory(QUEUES)
    assert disk.survives(QUEUES / "topic" / "0")
