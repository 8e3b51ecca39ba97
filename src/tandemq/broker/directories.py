"""Parts of a store on other disks: storePathCommitLog and its siblings become links under the store's root."""

from collections.abc import Mapping
from pathlib import Path

from tandemq.errors import ConfigError
from tandemq.store.disk import make_private_directory


def place_directories(root: Path, elsewhere: Mapping[str, Path]) -> None:
    """Makes `root/name` lead to its directory; ConfigError when something else is in its place."""
    for name, path in elsewhere.items():
        link = root / name
        path = path.absolute()
        if link.is_symlink() and link.readlink() == path:
            make_private_directory(path)
        elif link.is_symlink() or link.exists():
            raise ConfigError(
                f"{link} exists already and is not a link to {path}: move its contents there and remove it, "
                "or take the option out"
            )
        else:
            make_private_directory(path)
            make_private_directory(root)
            link.symlink_to(path)
