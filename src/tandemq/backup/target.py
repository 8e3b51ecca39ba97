"""Where a backup lies: a directory, or a bucket of an object store that speaks S3. Objects have names with slashes."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from tandemq import private
from tandemq.errors import ConfigError, StoreError

PIECE = 8 << 20
"""Bytes held in memory at a time; also the size of S3's parts, of which an object may have 10,000."""


class Target(Protocol):
    """Six verbs; errors are StoreErrors that name the object."""

    def where(self, name: str) -> str:
        """Returns an object's full name, for people."""
        ...

    def read(self, name: str) -> Iterator[bytes] | None:
        """Returns the pieces of an object, None if there is none of this name."""
        ...

    def size(self, name: str) -> int | None: ...

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        """Writes a whole object, durable on return; one of the same name is replaced."""
        ...

    def remove(self, name: str) -> None: ...

    def close(self) -> None: ...


def open_target(text: str) -> Target:
    """Returns the target that a user named: a directory or `s3://bucket/path`."""
    scheme, separator, _ = text.partition("://")
    if not separator:
        return DirectoryTarget(Path(text))
    if scheme == "s3":
        return S3Target(text)
    raise ConfigError(f"TARGET {text}: {scheme}:// is not known; give a directory or s3://bucket/path")


@contextlib.contextmanager
def _named(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{where}: {error.strerror or error}") from error


class DirectoryTarget:
    """Files under a directory; one backup at a time, which a lock sees to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = -1

    def where(self, name: str) -> str:
        return str(self._directory / name)

    def _path(self, name: str) -> Path:
        """Returns where an object lies. Names come from `backup.json` and directories may be others': no link in one
        leads out of this directory, or a backup would read, replace and delete files that are none of its own."""
        path = self._directory / name
        home = self._directory.resolve()
        if not path.resolve().is_relative_to(home):
            raise StoreError(f"{path} leads out of {home}: something there is a link; a backup has none")
        return path

    def read(self, name: str) -> Iterator[bytes] | None:
        path = self._path(name)
        return self._pieces(path) if path.is_file() else None

    def _pieces(self, path: Path) -> Iterator[bytes]:
        with _named(str(path)), open(path, "rb") as file:
            while piece := file.read(PIECE):
                yield piece

    def size(self, name: str) -> int | None:
        path = self._path(name)
        return path.stat().st_size if path.is_file() else None

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        path = self._path(name)
        part = path.with_name(f".{path.name}.part")
        with _named(str(path)):
            self._hold()
            private.make_directory(path.parent)
            with open(part, "wb", opener=private.opener) as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            self._sync_names(path.parent)

    def _hold(self) -> None:
        if self._lock >= 0:
            return
        private.make_directory(self._directory)
        self._lock = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, private.FILE_MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"{self._directory}: another backup is being written there; wait for its end") from error

    def _sync_names(self, directory: Path) -> None:
        """Makes the names on the way to a file durable, too: its directories may be new."""
        while True:
            fd = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            if directory == self._directory:
                return
            directory = directory.parent

    def remove(self, name: str) -> None:
        path = self._path(name)
        with _named(str(path)):
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty, or the backup's own directory
                for parent in path.relative_to(self._directory).parents[:-1]:
                    (self._directory / parent).rmdir()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class S3Target:
    """Objects below a prefix of a bucket. Accounts, region and endpoint are found as pyarrow finds them.

    That is: in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL), in AWS's own
    files, or in the name itself: `s3://bucket/path?endpoint_override=host:port&scheme=http`.
    """

    def __init__(self, text: str) -> None:
        self._shown = text.partition("?")[0].rstrip("/")
        if "@" in self._shown:  # s3://key:secret@bucket: neither log nor error shows them
            self._shown = "s3://" + self._shown.rpartition("@")[2]
        try:
            from pyarrow import fs
        except ImportError as error:
            raise ConfigError(
                f"TARGET {self._shown}: s3:// needs pyarrow, which the spark extra brings: "
                "pip install 'tandemq[spark]'; a directory as TARGET needs nothing"
            ) from error
        self._type: Any = fs.FileType
        try:
            self._files: Any
            self._files, self._root = fs.FileSystem.from_uri(text)
        except (OSError, ValueError) as error:
            raise ConfigError(f"TARGET {self._shown}: {error}") from error

    def where(self, name: str) -> str:
        return f"{self._shown}/{name}"

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def read(self, name: str) -> Iterator[bytes] | None:
        return self._pieces(name) if self.size(name) is not None else None

    def _pieces(self, name: str) -> Iterator[bytes]:
        with _named(self.where(name)), self._files.open_input_stream(self._path(name)) as stream:
            while piece := stream.read(PIECE):
                yield piece

    def size(self, name: str) -> int | None:
        with _named(self.where(name)):
            found = self._files.get_file_info(self._path(name))
        return int(found.size) if found.type == self._type.File else None

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        with _named(self.where(name)), self._files.open_output_stream(self._path(name)) as stream:
            for piece in pieces:
                stream.write(piece)

    def remove(self, name: str) -> None:
        with _named(self.where(name)), contextlib.suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def close(self) -> None:
        pass
