"""The model of etcd keeps what etcd promises: one order of changes, leases that live as long as they said."""

from base64 import b64encode
from random import Random
from typing import Any

from tandemq.sim.etcd import EtcdModel, EtcdNetwork, Watch
from tandemq.sim.network import EventQueue

KEY = "/k/register"


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def model() -> tuple[EtcdModel, EventQueue]:
    events = EventQueue()
    return EtcdModel(events, Random(1)), events


def swap(etcd: EtcdModel, revision: int, value: str, lease: int = 0) -> tuple[int, dict[str, Any]]:
    put = {"key": b64(KEY), "value": b64(value), "lease": str(lease)}
    return etcd.answer(
        "/v3/kv/txn",
        {"compare": [{"key": b64(KEY), "mod_revision": str(revision)}], "success": [{"request_put": put}]},
    )


def grant(etcd: EtcdModel, seconds: int) -> int:
    return int(etcd.answer("/v3/lease/grant", {"TTL": str(seconds), "ID": "0"})[1]["ID"])


def run_to(events: EventQueue, time: float) -> None:
    events.at(time, lambda: None)
    while events.now < time and events.step():
        pass


def test_a_swap_on_another_revision_changes_nothing_and_tells_what_is_there() -> None:
    etcd, _ = model()
    assert swap(etcd, 0, "a")[1]["succeeded"]
    _, said = swap(etcd, 0, "b")
    assert "succeeded" not in said
    assert said["responses"][0]["response_range"]["kvs"][0]["value"] == b64("a")
    assert swap(etcd, etcd.revision, "b")[1]["succeeded"]


def test_a_lease_lives_its_time_and_takes_its_keys_with_it() -> None:
    etcd, events = model()
    lease = grant(etcd, 2)
    swap(etcd, 0, "a", lease)
    run_to(events, 1.5)
    assert etcd.answer("/v3/lease/keepalive", {"ID": str(lease)})[1]["result"]["TTL"] == "2"
    run_to(events, 3.4)
    assert KEY in etcd.keys
    run_to(events, 4.0)
    assert KEY not in etcd.keys
    assert "TTL" not in etcd.answer("/v3/lease/keepalive", {"ID": str(lease)})[1]["result"]
    assert swap(etcd, 0, "b", lease)[0] == 404


def test_a_new_leader_gives_leases_their_whole_time_again() -> None:
    etcd, events = model()
    lease = grant(etcd, 2)
    run_to(events, 1.9)
    etcd.change_leader(1.0)
    assert swap(etcd, 0, "a")[0] == 503
    run_to(events, 4.8)
    assert lease in etcd.leases
    run_to(events, 5.3)
    assert lease not in etcd.leases


def test_a_watch_from_a_compacted_revision_ends() -> None:
    etcd, _ = model()
    heard: list[dict[str, Any]] = []
    watch = Watch("/k/", "/k0", heard.append, "e0", "n0")
    etcd.watch(watch, 1)
    swap(etcd, 0, "a")
    assert heard[-1]["result"]["events"][0]["kv"]["key"] == b64(KEY)
    etcd.compact()
    etcd.watch(watch, 1)
    assert heard[-1]["result"]["canceled"]


def test_an_answer_that_is_lost_leaves_its_effect() -> None:
    etcd, events = model()
    network = EtcdNetwork(etcd, events, Random(1))
    answers: list[object] = []
    network.lost = 2.0  # half of that takes the request, the rest the answer
    while KEY not in etcd.keys:
        put = {"key": b64(KEY), "value": b64("a")}
        asked = {"compare": [{"key": b64(KEY), "mod_revision": "0"}], "success": [{"request_put": put}]}
        network.lost = 1.0
        network.request("n0", "e0", "/v3/kv/txn", asked, answers.append)
        while events.step():
            pass
    assert not answers
