"""The words above the pictures, and the register beside them."""

from tandemq.console.pages.replication import _facts, _verdict
from tandemq.console.picture import Report, draw


def master(name: str, **detail: object) -> Report:
    return Report(group=name, broker_id=0, address=f"{name}:1", kind="TandemQ", heard_ms=1,
                  detail={"role": "master", "phase": "open", "level": "1", "replicas": [], **detail})  # fmt: skip


def test_the_verdict_counts_what_takes_no_messages() -> None:
    well, shut = master("a"), master("b", writable=False)
    assert _verdict(draw([well], 2))[0] == "Every group has its master and its copies."
    assert _verdict(draw([shut], 2))[0] == "b takes no messages."
    assert _verdict(draw([well, shut], 2))[0] == "1 of 2 groups takes no messages: b."
    assert _verdict(draw([well, master("c", level="2")], 2))[0] == "1 of 2 groups has fewer copies than they should."
    assert _verdict(())[0] == "No broker is known."


def test_a_register_is_shown_whatever_it_holds() -> None:
    shown = dict(_facts({"holder": "h:1#x", "in_sync": ["h:1#x", "i:1#y"], "lease": {"left_ms": 1400}, "none": None}))
    assert shown == {"holder": "h:1", "in sync": "h:1, i:1", "lease left": "1.4\u00a0s"}
    assert dict(_facts({"electable": []})) == {"electable": "nobody"}
