"""Kafka's metrics from the offsets that Spark shows."""

import json
from types import SimpleNamespace
from typing import Any

from tandemq.spark.lag import LagListener, behind_latest, lags_of

END = {"v": 1, "q": {"a/t/0": 10, "a/t/1": 5}}
LATEST = {"v": 1, "q": {"a/t/0": 10, "a/t/1": 25}, "replicas": {"a": {"address": "h:1", "behind": 4096}}}


def progress(**changed: Any) -> dict[str, Any]:
    source = {"description": "ours", "endOffset": END, "latestOffset": LATEST}
    foreign = {"description": "rate", "endOffset": "5", "latestOffset": "7"}
    return {"id": "q1", "name": None, "batchId": 3, "sources": [{**source, **changed}, foreign]}


def test_messages_that_wait_are_counted_as_kafka_counts_them() -> None:
    (lag,) = lags_of(progress())
    assert (lag.query, lag.batch, lag.source) == ("q1", 3, "ours")
    assert lag.metrics == {
        "minOffsetsBehindLatest": 0.0, "maxOffsetsBehindLatest": 20.0, "avgOffsetsBehindLatest": 10.0,
        "replicaBytesBehindMaster.a": 4096.0,
    }  # fmt: skip


def test_offsets_come_as_text_too_and_a_log_is_counted_in_bytes() -> None:
    end, latest = json.dumps({"v": 1, "log": {"a": 100}}), json.dumps({"v": 1, "log": {"a": 300, "b": 50}})
    (lag,) = lags_of(progress(endOffset=end, latestOffset=latest))
    assert lag.metrics["estimatedTotalBytesBehindLatest"] == 250.0
    assert lag.metrics["maxBytesBehindLatest"] == 200.0


def test_what_is_no_offset_of_ours_has_no_lag() -> None:
    assert lags_of(progress(latestOffset=None)) == []
    assert lags_of(progress(endOffset="no json")) == []
    assert behind_latest({"q": {}}, {"q": {}})["avgOffsetsBehindLatest"] == 0.0


def test_a_listener_keeps_the_last_lag_of_every_source() -> None:
    seen: list[int] = []
    listener = LagListener(lambda lag: seen.append(lag.batch))
    event = SimpleNamespace(progress=SimpleNamespace(json=json.dumps(progress())))
    listener.onQueryProgress(event)
    listener.onQueryProgress(event)
    assert seen == [3, 3]
    assert list(listener.latest) == [("q1", "ours")]
