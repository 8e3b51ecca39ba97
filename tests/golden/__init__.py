"""What real brokers wrote, to be compared with: see README.md."""

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent


def unpack(version: str, into: Path) -> Path:
    """The stores of one RocketMQ version: master-killed, slave-clean, master-clean."""
    with tarfile.open(ROOT / f"rocketmq-{version}" / "stores.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python 3.11.2 has no filters yet
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(into)
    return into


def manifest(version: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Every message in these stores, as RocketMQ's own client decoded it; and every offset a group had committed."""
    with gzip.open(ROOT / f"rocketmq-{version}" / "manifest.jsonl.gz", "rt", encoding="utf-8") as lines:
        entries = [json.loads(line) for line in lines]
    return [e for e in entries if "physicalOffset" in e], [e for e in entries if "group" in e]
