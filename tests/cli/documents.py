"""The commands in the documents, as a reader meets them: fenced blocks, and transcripts of command and output."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "deploy" / "README.md"]
_BLOCK = re.compile(r"^(?:<!-- not run: (.*?) -->\n)?^```(sh|console|bash)\n(.*?)^```", re.M | re.S)
_NUMBER = re.compile(r"\d[\d.,:]*")
_ID = re.compile(r"\b[0-9A-F]{32}\b")


@dataclass(frozen=True)
class Block:
    """One fenced block of commands."""

    page: Path
    language: str
    text: str
    not_run: str
    """Why no test runs it; empty if one does."""


def blocks_of(page: Path) -> list[Block]:
    return [Block(page, found[2], found[3], found[1] or "") for found in _BLOCK.finditer(page.read_text())]


def transcript(text: str) -> list[tuple[str, list[str]]]:
    """Returns each `$ command` of a console block with the lines that follow it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def unlike(expected: list[str], output: str) -> str:
    """Returns the first line of a transcript that the real output lacks, in this order; empty if it has all.

    Numbers, ids and the width of columns may differ, and whatever stands for `…`.
    """
    lines = iter(output.splitlines())
    for line in expected:
        pattern = re.compile(_pattern(line))
        if not any(pattern.fullmatch(real.strip()) for real in lines):
            return line
    return ""


def _pattern(line: str) -> str:
    words = []
    for word in line.strip().split():
        word = _ID.sub("\0", word)
        word = _NUMBER.sub("\1", word)
        word = re.escape(word).replace("…", ".*")
        words.append(word.replace("\0", "[0-9A-F]{32}").replace("\1", r"\d[\d.,:]*"))
    return r"\s+".join(words)
