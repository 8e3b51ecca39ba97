"""Names, ports and stores of several groups on one machine; pauses before restarts; metrics as one."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tandemq.broker.config import BrokerConfig
from tandemq.cli.group_plan import BackOff, check_layout, merged_metrics, plan_groups
from tandemq.errors import ConfigError
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig

LOG = ["00000000000000000000"]


def plan(count: int, port: int = 10911, **replication: Any) -> list[Any]:
    broker = BrokerConfig(broker_name="broker-a", broker_groups=count, store_path_root_dir="/s", metrics_port=5557)
    return plan_groups(broker, RemotingConfig(listen_port=port), ReplicationConfig(**replication))


def test_each_group_has_its_name_ports_and_store() -> None:
    first, second, third = plan(3, ha_master_address="10.0.0.1:10912")
    assert [group.name for group in (first, second, third)] == ["broker-a-0", "broker-a-1", "broker-a-2"]
    assert third.settings == {
        "brokerGroups": "1",
        "brokerName": "broker-a-2",
        "listenPort": "10931",
        "storePathRootDir": "/s/2",
        "haMasterAddress": "10.0.0.1:10932",
        "metricsPort": "10934",
        "metricsAddress": "127.0.0.1",
    }
    assert first.flags()[:4] == ["--set", "brokerGroups=1", "--set", "brokerName=broker-a-0"]


def test_ports_of_groups_never_meet() -> None:
    groups = plan(64, ha_listen_port=20000)
    ports = [group.port + offset for group in groups for offset in (-2, 0, 1, 3)]
    assert len(ports) == len(set(ports))
    assert groups[1].settings["haListenPort"] == "20010"


@pytest.mark.parametrize(("count", "port", "told"), [(2, 0, "need a fixed port"), (64, 65000, "would need port 65633")])
def test_plans_that_do_not_fit(count: int, port: int, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        plan(count, port)


def on_disk(**directories: list[str]) -> Any:
    tree = {Path("/s") / name.replace("_", "/"): content for name, content in directories.items()}
    return lambda path: tree.get(path, [])


def test_a_store_at_the_root_is_no_store_of_groups() -> None:
    with pytest.raises(ConfigError, match=r"holds the store of a single broker.*move this store to /s/0"):
        check_layout(Path("/s"), 2, on_disk(commitlog=LOG))
    assert check_layout(Path("/s"), 1, on_disk(commitlog=LOG)) == []


def test_stores_of_groups_are_no_store_at_the_root() -> None:
    listed = on_disk(**{"": ["0", "2"], "0_commitlog": LOG, "2_commitlog": LOG})
    with pytest.raises(ConfigError, match="stores of groups 0, 2: start with --groups 3"):
        check_layout(Path("/s"), 1, listed)
    (note,) = check_layout(Path("/s"), 2, listed)
    assert "/s/2 holds a store that no group uses" in note


def test_pauses_grow_and_a_steady_process_starts_afresh() -> None:
    back_off = BackOff()
    assert [back_off.after(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert back_off.after(61) == 1
    assert back_off.restarts == 9


def test_metrics_of_all_groups_are_one_text() -> None:
    text = '# HELP up_x Is it.\n# TYPE up_x gauge\nup_x 1\n# HELP t_x By topic.\n# TYPE t_x gauge\nt_x{topic="a"} 2\n'
    own = '# HELP who_x Who.\n# TYPE who_x gauge\nwho_x{cluster="c",broker="b-0"} 1\n'
    merged = merged_metrics({"b-0": text + own, "b-1": text, "b-2": ""})
    families = {family.name: family for family in text_string_to_metric_families(merged)}
    assert merged.count("# TYPE up_x gauge") == 1
    assert [(s.labels, s.value) for s in families["up_x"].samples] == [({"broker": "b-0"}, 1), ({"broker": "b-1"}, 1)]
    assert families["t_x"].samples[1].labels == {"broker": "b-1", "topic": "a"}
    assert families["who_x"].samples[0].labels == {"cluster": "c", "broker": "b-0"}
    assert merged_metrics({}) == ""
