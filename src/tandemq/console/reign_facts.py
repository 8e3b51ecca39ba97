"""Who says who may write, as brokers tell it: coordinator, lease, who may be elected, register. Pure.

Brokers of other versions tell more or less; what is not told is left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tandemq.console.texts import duration

Facts = list[tuple[str, str]]
Section = tuple[str, Facts]

FOR_MACHINES = frozenset({"group_id", "epoch_id", "revision"})
"""Of a register: what tells a person nothing; `tandemq ha status --json` has it."""


def coordination_facts(told: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """Returns coordinator, lease and electability; `told` is what each address says of its coordination."""
    if not told:
        return []
    # Whoever reigns knows its lease; of the others the one that has read the register last.
    seen = max(told.values(), key=lambda one: (one.get("lease_left") or 0.0, one.get("revision") or 0))
    state = "answers" if seen.get("answers") else f"does not answer: {seen.get('trouble') or 'no reason is told'}"
    coordinator = [("place", str(seen.get("place", "not known"))), ("state", state)]
    return [
        ("Coordinator", coordinator),
        ("Lease", _lease(seen)),
        ("Election", [(address, _electable(one)) for address, one in told.items()]),
    ]


def _lease(seen: Mapping[str, Any]) -> Facts:
    left, seconds = seen.get("lease_left") or 0.0, seen.get("lease_seconds")
    facts = [("left", f"{left:.1f} of {seconds:g} s" if left and seconds else "nobody holds it")]
    if seen.get("holder"):
        facts.insert(0, ("holder", short(seen["holder"])))
    if seen.get("vouched"):
        facts.append(("kept by", "the in-sync members, who vouch for it"))
    if seen.get("lapsed"):
        facts.append(("state", "lapsed: nobody writes"))
    if seen.get("one_copy_in"):
        facts.append(("one copy is enough in", duration(seen["one_copy_in"] * 1000)))
    if seen.get("paused"):
        facts.append(("elections", "paused by an operator"))
    if seen.get("pinned"):
        facts.append(("master", "pinned by an operator"))
    if seen.get("without_master_ms"):
        facts.append(("without a master for", duration(seen["without_master_ms"])))
    return facts


def _electable(seen: Mapping[str, Any]) -> str:
    why = seen.get("refusal") or seen.get("hindrance")
    said = f"can't be elected: {why}" if why else str(seen.get("verdict") or "may be elected")
    said = re.sub(r"#[0-9a-f]{8,}", "", said)
    return f"{said}; priority {seen['priority']}" if seen.get("priority") is not None else said


def facts_of(told: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Facts:
    """Returns a register as name and value, whatever it holds."""
    found: Facts = []
    for name, value in told.items():
        if str(name) in FOR_MACHINES:
            continue
        label = f"{prefix}{_words(str(name))}"
        if isinstance(value, Mapping) and depth < 2:
            found += facts_of(value, f"{label} ", depth + 1)
        elif isinstance(value, Sequence) and not isinstance(value, str):
            found.append((label, ", ".join(short(item) for item in value) or "nobody"))
        elif isinstance(value, bool):
            found.append((label, "yes" if value else "no"))
        elif label.endswith(" ms") and isinstance(value, (int, float)):
            found.append((label.removesuffix(" ms"), duration(value)))
        elif value not in ("", None, -1):
            found.append((label, short(value)))
    return found[:24]


def _words(name: str) -> str:
    """Returns a name of the JSON as words: `expiresInMs`, `expires_in_ms` -> `expires in ms`."""
    spread = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spread.replace("_", " ").strip()


def short(value: Any) -> str:
    """Returns a replica by its address; the number of its store is for machines."""
    if isinstance(value, Mapping):
        value = value.get("address") or value.get("replica") or value
    return str(value).partition("#")[0]
