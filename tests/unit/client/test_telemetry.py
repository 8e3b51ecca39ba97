"""What clients report to is set for those made afterwards."""

from tests.unit.client.fake_cluster import FakeCluster

from tandemq.client.producer import Producer
from tandemq.client.telemetry import current_telemetry, set_telemetry


def test_clients_take_the_telemetry_that_is_set_when_they_are_made() -> None:
    marker: object = object()
    before = Producer("p", session=FakeCluster().session())
    set_telemetry(marker)  # type: ignore[arg-type]
    try:
        during = Producer("p", session=FakeCluster().session())
        assert current_telemetry() is marker
    finally:
        set_telemetry(None)
    assert (before._telemetry, during._telemetry, current_telemetry()) == (None, marker, None)
