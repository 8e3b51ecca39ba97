"""A group of the version before, without a register, gets one as soon as all on record are in sync; not earlier."""

import logging

import pytest

from tandemq.replication import replica_file
from tandemq.sim.node import ROOT
from tandemq.sim.scenario import Story


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def without_registers(story: Story) -> None:
    """What the version before would have left on the disks of nodes that are stopped."""
    for node in story.nodes:
        record = replica_file.load(node.disk, ROOT)
        assert record is not None
        replica_file.save(node.disk, ROOT, record.with_(register=None, role=""))


def stopped_group(nodes: int) -> Story:
    story = Story()
    story.do(f"nodes {nodes} level 2")
    assert story.do("send n0 5") == ["5 of 5 acknowledged"]
    for node in reversed(story.nodes):
        story.do(f"stop {node.name}")
    without_registers(story)
    return story


def test_the_master_mints_it_when_all_on_record_have_come() -> None:
    story = stopped_group(3)
    story.do("start n0")
    story.do("start n1")
    assert story.do("register n0") == ["none"], "n2 is on record and silent: the former rules hold"
    assert story.do("send n0 2") == ["2 of 2 acknowledged"]
    story.do("start n2")
    found = {story.do(f"register {node.name}")[0].partition(" in_sync")[0] for node in story.nodes}
    assert len(found) == 1
    assert all(f" {node.name}" in found.copy().pop() for node in story.nodes)
    assert story.do("send n0 2") == ["2 of 2 acknowledged"]
    story.do("kill n0")
    story.do("promote n1")
    assert story.do("holds n1") == ["9 of 9"]


def test_a_record_that_never_comes_is_forgotten_and_the_register_made() -> None:
    story = stopped_group(3)
    story.do("start n0")
    story.do("start n1")
    assert story.do("forget n0 n2")[-1] == "n2 is forgotten"
    story.do("wait 0.3")
    assert "members n0 n1" in story.do("register n0")[0] or "members n1 n0" in story.do("register n0")[0]
