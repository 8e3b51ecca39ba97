"""The console against real RocketMQ: it shows what brokers tell, says what they don't, and its acts are done there."""

import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.console.conftest import ARTIFACTS, Tab, console_for
from tests.peers import programs, servers, wire
from tests.peers.tools import Missing

pytestmark = [pytest.mark.peer, pytest.mark.slow]

PAGES = (
    "/cluster", "/replication", "/topics", "/topics/new", "/topics/by-console", "/messages?topic=by-console", "/groups",
    "/groups/readers", "/dead-letters", "/waiting", "/clients", "/clients?kind=producers", "/audit", "/search?q=by",
)  # fmt: skip


def mqadmin(version: str, *lines: str) -> list[str]:
    """What each command of the version's own tool printed."""
    command, environment = programs.java(version, "Admin")
    done = subprocess.run([*command, *lines], env=environment, capture_output=True, text=True, timeout=200, check=False)
    said = re.split(r"^=== .*$", done.stdout, flags=re.MULTILINE)[1:]
    assert len(said) == len(lines), f"{done.stdout}\n{done.stderr[-2000:]}"
    return said


def committed(broker: str, queue: int) -> int:
    """The group's offset as the broker itself answers; mqadmin prints none of a group that was never online."""
    fields = {"consumerGroup": "readers", "topic": "by-console", "queueId": str(queue)}
    answer, _ = wire.ask(broker, 14, fields)
    assert answer["code"] == 0, answer
    return int(answer["extFields"]["offset"])


def available(version: str) -> None:
    try:
        programs.java(version, "Admin")
    except Missing as reason:
        pytest.skip(str(reason))


def test_acts_on_rocketmq_5_are_seen_by_its_own_tool(tmp_path: Path, tab: Tab) -> None:
    version = "5.5.0"
    available(version)
    page = tab.page
    with (
        servers.rocketmq(version, tmp_path, slave=True, role="SYNC_MASTER") as up,
        console_for(up.namesrv) as url,
    ):
        n = f"-n {up.namesrv}"
        page.goto(f"{url}/replication")
        expect(page.locator("section.panel").first).to_contain_text("RocketMQ 5")
        expect(page.locator(".lane")).to_have_count(2, timeout=60_000)
        expect(page.locator("section.panel header .status").first).to_have_text("healthy", timeout=60_000)
        expect(page.locator(".lane")).to_have_count(2)
        expect(page.locator(".lane").nth(1)).to_contain_text(up.slave)
        page.screenshot(path=_picture("rocketmq-5-replication"), full_page=True)

        page.goto(f"{url}/topics/new")
        page.get_by_label("Name", exact=True).fill("by-console")
        page.get_by_label("Read queues").fill("3")
        page.get_by_label("Write queues").fill("3")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_label("Outcome")).to_contain_text("on broker-a")
        page.goto(f"{url}/messages?topic=by-console&form=send")
        page.get_by_label("Body").fill("from the console")
        page.get_by_label("Keys").fill("k-1")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_label("Outcome")).to_contain_text("SEND_OK")
        expect(page.locator("pre.json")).to_contain_text("from the console")
        page.goto(f"{url}/groups")
        page.get_by_text("Create a group…").click()
        page.get_by_label("Name", exact=True).fill("readers")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_label("Outcome")).to_contain_text("on broker-a")
        listed, status, found, _ = mqadmin(
            version, f"topicList {n}", f"topicStatus {n} -t by-console", f"queryMsgByKey {n} -t by-console -k k-1",
            f"resetOffsetByTime {n} -g readers -t by-console -s -1",
        )  # fmt: skip
        assert "by-console" in listed
        assert len(re.findall(r"broker-a\s+\d", status)) == 3
        assert re.search(r"[0-9A-F]{32}", found)

        for target, total in (("latest", 1), ("earliest", 0)):
            page.goto(f"{url}/groups/readers?topic=by-console&to={target}")
            expect(page.locator("#reset tbody tr")).to_have_count(3)
            page.locator("#reset").get_by_label("Type readers to confirm").fill("readers")
            page.get_by_role("button", name="Move the group").click()
            expect(page.get_by_label("Outcome")).to_contain_text("3 of 3 queues moved")
            assert sum(committed(up.broker, queue) for queue in range(3)) == total

        for path in PAGES:
            page.goto(url + path)
            expect(page.locator("#pause")).to_be_visible()
            name = path.strip("/").partition("?")[0].replace("/", "-")
            page.screenshot(path=_picture(f"rocketmq-5-{name}"), full_page=True)
        page.goto(f"{url}/audit")
        expect(page.locator(".verdict")).to_contain_text("only this console's acts are known")

        page.goto(f"{url}/topics/by-console")
        page.get_by_text("Delete this topic…").click()
        page.get_by_label("Type by-console to confirm").fill("by-console")
        page.get_by_role("button", name="Delete topic").click()
        expect(page.locator("h1")).to_have_text("Topics")
        (listed,) = mqadmin(version, f"topicList {n}")
        assert "by-console" not in listed


def test_rocketmq_4_is_shown_with_what_it_does_not_tell(tmp_path: Path, browser: Browser, tab: Tab) -> None:
    version = "4.9.7"
    available(version)
    page = tab.page
    with servers.rocketmq(version, tmp_path) as up, console_for(up.namesrv) as url:
        page.goto(f"{url}/replication")
        panel = page.locator("section.panel").first
        expect(panel).to_contain_text("no HA details")
        expect(panel).to_contain_text("RocketMQ 4 does not tell")
        page.goto(f"{url}/cluster")
        expect(page.locator("tr.member")).to_have_count(1)
        for path in PAGES:
            if "by-console" not in path and "readers" not in path:
                page.goto(url + path)
                expect(page.locator("#pause")).to_be_visible()
        page.goto(f"{url}/replication")
        page.screenshot(path=_picture("rocketmq-4-replication"), full_page=True)


def _picture(name: str) -> Path:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    return ARTIFACTS / f"{name}.png"
