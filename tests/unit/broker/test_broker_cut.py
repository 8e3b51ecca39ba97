"""What a broker does when replication has cut its log."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tandemq.broker.broker import Broker
from tandemq.broker.log_agreement import LogAgreement
from tandemq.broker.tables.offsets import OffsetTable


def test_offsets_beyond_a_cut_are_taken_back_in_the_file_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """A seed of the simulator: the file kept the old offset, and after a crash the log had grown past it."""
    caplog.set_level("CRITICAL")
    marks: list[str] = []
    broker = object.__new__(Broker)
    broker.offsets = OffsetTable(lambda: 0)
    broker.offsets.commit("g", "t", 0, 23)
    broker.offsets.dirty = False
    store = SimpleNamespace(queue_end=lambda topic, queue_id: 13, reader=SimpleNamespace(queues_with_messages=list))
    topics = SimpleNamespace(adopt=lambda queues: [])
    stubs = {
        "_log_agreement": LogAgreement(cast("Any", store), cast("Any", topics), broker.offsets, cast("Any", None)),
        "offsets_file": SimpleNamespace(mark=lambda: marks.append("offsets")),
        "idempotence": SimpleNamespace(log_was_cut=lambda: None),
        "timer_checkpoint": SimpleNamespace(forget=lambda: None),
    }
    for name, stub in stubs.items():
        setattr(broker, name, stub)
    broker.log_was_cut()
    assert broker.offsets.query("g", "t", 0) == 13
    assert marks == ["offsets"]
