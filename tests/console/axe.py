"""axe-core looks at a page as somebody would who can't see it; it comes from the npm registry when first needed."""

import functools
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

PACKAGE = "axe-core@4.14.0"
_RUN = """() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations
    .filter(item => ['serious', 'critical'].includes(item.impact))
    .map(item => ({rule: item.id, impact: item.impact,
        where: item.nodes.slice(0, 3).map(node => node.html.slice(0, 160))})))"""


@functools.cache
def source() -> str:
    if shutil.which("npm") is None:
        pytest.skip("no npm to fetch axe-core with (Debian: apt-get install npm)")
    with tempfile.TemporaryDirectory() as directory:
        command = ["npm", "pack", "--silent", "--prefer-offline", PACKAGE]
        done = subprocess.run(command, cwd=directory, capture_output=True, timeout=120)
        archives = list(Path(directory).glob("*.tgz"))
        if done.returncode != 0 or not archives:
            pytest.skip(f"{PACKAGE} can't be fetched from the npm registry")
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            return member.read().decode()


def serious_faults(page: Page) -> list[dict[str, Any]]:
    """The faults of the page that keep somebody from using it."""
    page.evaluate(source())
    found: list[dict[str, Any]] = page.evaluate(_RUN)
    return found
