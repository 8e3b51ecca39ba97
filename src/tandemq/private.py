"""Files and directories that hold messages or secrets are their owner's alone, whatever the umask says."""

import os
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700


def opener(path: str, flags: int) -> int:
    """Opens a new file for its owner alone: `open(path, "wb", opener=private.opener)`."""
    return os.open(path, flags, FILE_MODE)


def make_directory(path: Path, *, exist_ok: bool = True) -> None:
    """Makes a directory, and the missing ones above it, for their owner alone; `Path.mkdir` does so for the last."""
    if not path.parent.is_dir():
        make_directory(path.parent)
    path.mkdir(DIRECTORY_MODE, exist_ok=exist_ok)


def write_text(path: Path, text: str) -> None:
    """Writes a file anew; one that is there loses what others might do with it."""
    with open(path, "w", opener=opener) as file:
        os.fchmod(file.fileno(), FILE_MODE)
        file.write(text)
