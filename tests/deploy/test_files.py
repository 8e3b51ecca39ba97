"""The files of deploy/, as far as they can be checked without running them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.peers.tools import Missing, need

from tandemq.broker.config import BrokerConfig
from tandemq.namesrv.config import NamesrvConfig
from tandemq.remoting.access.plain import PlainAccounts
from tandemq.remoting.config import RemotingConfig
from tandemq.replication.config import ReplicationConfig
from tandemq.settings import parse_text, settings_of
from tandemq.store.config import StoreConfig

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus" / "tandemq.rules.yml"
CONFIGS = (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig, NamesrvConfig)
EXPOSURE_MAX = 2.0


def tool(*command: str, cwd: Path = ROOT) -> str:
    try:
        need(command[0])
    except Missing as reason:
        pytest.skip(str(reason))
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


# Prometheus and Grafana -----------------------------------------------------------------------------------------------


def documented_metrics() -> set[str]:
    """The metrics that docs/operations.md lists; tests/unit/test_docs.py compares them with the code."""
    return set(re.findall(r"`(tandemq_\w+)`", (ROOT / "docs" / "operations.md").read_text()))


def used_metrics(expression: str) -> set[str]:
    return {re.sub(r"_bucket$", "", name) for name in re.findall(r"\btandemq_\w+", expression)}


def test_rules_and_scrape_configuration_are_valid() -> None:
    assert f"{len(alerts())} rules found" in tool("promtool", "check", "rules", str(RULES))
    tool("promtool", "check", "config", "prometheus.yml", cwd=DEPLOY / "prometheus")


def test_each_alert_fires_for_its_fault_and_not_without_it() -> None:
    text = (DEPLOY / "prometheus" / "tandemq.rules_test.yml").read_text()
    cases = [case for test in yaml.safe_load(text)["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {rule["alert"] for rule in alerts()}
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == {rule["alert"] for rule in alerts()}
    assert "SUCCESS" in tool("promtool", "test", "rules", "tandemq.rules_test.yml", cwd=DEPLOY / "prometheus")


def test_alerts_use_metrics_that_exist_and_have_a_runbook() -> None:
    """docs/operations.md has a heading for each alert: what it means and what to do."""
    page = (ROOT / "docs" / "operations.md").read_text()
    for rule in alerts():
        assert used_metrics(rule["expr"]) <= documented_metrics(), rule["alert"]
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert re.search(rf"^#+ {rule['alert']}$", page, flags=re.M), rule["alert"]


def dashboard_expressions() -> list[str]:
    panels = json.loads((DEPLOY / "grafana" / "tandemq.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_dashboard_asks_for_metrics_that_exist(tmp_path: Path) -> None:
    expressions = dashboard_expressions()
    assert len(expressions) > 25
    assert set().union(*map(used_metrics, expressions)) <= documented_metrics()
    rules = [
        {"record": f"panel:number:{number}", "expr": expression.replace("$broker", "broker-a")}
        for number, expression in enumerate(expressions)
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    tool("promtool", "check", "rules", str(tmp_path / "panels.yml"))


# Units ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tandemq-broker", "tandemq-namesrv"])
def test_units_are_valid_and_confined(name: str, tmp_path: Path) -> None:
    """`systemd-analyze` knows every directive, and the exposure is low."""
    text = (DEPLOY / "systemd" / f"{name}.service").read_text()
    assert f"ExecStart=/opt/tandemq/bin/tandemq {name.removeprefix('tandemq-')} -c /etc/tandemq/" in text
    program = tmp_path / "tandemq"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / f"{name}.service"
    unit.write_text(text.replace("/opt/tandemq/bin/tandemq", str(program)))
    said = tool("systemd-analyze", "verify", "--man=no", str(unit))
    assert [line for line in said.splitlines() if name in line and "not found" not in line] == []
    said = tool("systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit))
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", said)
    assert exposure is not None
    assert float(exposure[1]) <= EXPOSURE_MAX


# Containers -----------------------------------------------------------------------------------------------------------


def check_arguments(arguments: list[str]) -> str:
    """Checks the `--set` of a command line against the declared options; returns the noun."""
    noun, *rest = arguments
    known = {s.key: (field, s) for config in CONFIGS for field, s in settings_of(config).values()}
    words = iter(rest)
    for word in words:
        if word == "--set":
            word = f"--set={next(words)}"
        if word.startswith("--set="):
            key, _, value = word.removeprefix("--set=").partition("=")
            assert key in known, key
            parse_text(*known[key], value)
        else:
            assert word.startswith("--config="), word
    return noun


def test_the_compose_file_describes_a_pair() -> None:
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    services = compose["services"]
    nouns = {name: check_arguments(service["command"]) for name, service in services.items()}
    assert nouns == {"namesrv-1": "namesrv", "namesrv-2": "namesrv", "master": "broker", "slave": "broker"}
    assert {volume.split(":")[0] for service in services.values() for volume in service["volumes"]} == set(
        compose["volumes"]
    )
    context = (DEPLOY / "docker" / services["master"]["build"]["context"]).resolve()
    assert context == ROOT
    assert (ROOT / services["master"]["build"]["dockerfile"]).exists()


def test_the_image_copies_what_there_is() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    sources = [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, flags=re.M) for word in line.split()[:-1]]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    allowed = (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().split()
    assert {f"!{source}" for source in sources} == set(allowed) - {"*"}
    assert "--require-hashes" in text
    assert "USER tandemq" in text


def test_the_manifests_describe_a_pair() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "tandemq.yaml").read_text()))
    sets = {doc["metadata"]["name"]: doc for doc in documents if doc["kind"] == "StatefulSet"}
    assert set(sets) == {"tandemq-namesrv", "tandemq-master", "tandemq-slave"}
    for found in sets.values():
        template = found["spec"]["template"]
        assert found["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        (container,) = template["spec"]["containers"]
        check_arguments([word.replace("$(POD_IP)", "10.0.0.1") for word in container["args"]])
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"] for volume in template["spec"].get("volumes", ())}
        claims = {claim["metadata"]["name"] for claim in found["spec"]["volumeClaimTemplates"]}
        assert mounts == volumes | claims
    (config,) = [doc for doc in documents if doc["kind"] == "ConfigMap"]
    check_arguments(["broker", *(f"--set={line}" for line in config["data"]["broker.conf"].split())])


# Security -------------------------------------------------------------------------------------------------------------


def test_the_sample_accounts_are_read() -> None:
    text = (DEPLOY / "security" / "plain_acl.yml").read_text()
    PlainAccounts.from_text(text, "plain_acl.yml")
    assert text.count("change-me") == 3


def test_certificates_are_made_for_names_and_addresses(tmp_path: Path) -> None:
    tool("openssl", "version")
    script = DEPLOY / "security" / "make-certificates.sh"
    command = [script, tmp_path / "tls", "127.0.0.1", "broker.example"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert {"ca.pem", "server-127.0.0.1.pem", "server-broker.example.key", "client.pem"} <= set(said.split())
    for certificate in ("server-127.0.0.1.pem", "server-broker.example.pem", "client.pem"):
        tool("openssl", "verify", "-CAfile", "ca.pem", certificate, cwd=tmp_path / "tls")
