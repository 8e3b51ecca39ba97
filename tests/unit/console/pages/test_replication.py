"""The words above the pictures."""

from tandemq.console.pages.replication import _verdict
from tandemq.console.picture import Report, draw


def master(name: str, **detail: object) -> Report:
    return Report(group=name, broker_id=0, address=f"{name}:1", kind="TandemQ", heard_ms=1,
                  detail={"role": "master", "phase": "open", "level": "1", "replicas": [], **detail})  # fmt: skip


def test_the_verdict_counts_what_takes_no_messages() -> None:
    well, shut = master("a"), master("b", writable=False)
    assert _verdict(draw([well], 2))[0] == "Every group has its master and its copies."
    assert _verdict(draw([shut], 2))[0] == "b takes no messages."
    assert _verdict(draw([well, shut], 2))[0] == "1 of 2 groups takes no messages: b."
    assert _verdict(draw([master("c", level="2")], 2))[0] == "c has fewer copies than it should."
    assert _verdict(draw([well, master("c", level="2")], 2))[0] == "1 of 2 groups has fewer copies than they should."
    assert _verdict(())[0] == "No broker is known."


def test_copies_that_a_broker_does_not_tell_of_are_not_claimed() -> None:
    silent = Report(group="r", broker_id=0, address="r:1", kind="RocketMQ 4", heard_ms=1, detail={"replicas": []})
    assert _verdict(draw([silent], 2)) == ("Every group has its master.", "Of its copies nothing is told here: r.")
