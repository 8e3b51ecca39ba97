"""A person watches: the pair is there, the master dies, the page says so, and that it is back.

That the page says so within two seconds is measured by `console.watching` of `bench`.
"""

import pytest
from playwright.sync_api import Page, expect
from tests.console.conftest import Live, Tab

from tandemq.testing.waiting import wait_until

pytestmark = pytest.mark.slow


def test_the_cluster_page_shows_the_pair_and_changes_by_itself(live: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{live.url}/")
    expect(page).to_have_url(f"{live.url}/cluster")
    expect(page.locator("h1")).to_have_text("DefaultCluster")
    expect(page.locator(".verdict")).to_contain_text("The group takes messages")
    expect(page.locator("tr.member")).to_have_count(2)
    expect(page.locator("tr.member").nth(1)).to_contain_text("in sync")
    expect(page.locator("#live_servers tbody tr")).to_have_count(2)
    before = page.locator("#live_figures div").nth(2).inner_text()
    live.tandemq("send", "watched", "--count", "200", "--size", "2000")
    expect(page.locator("#live_figures div").nth(2)).not_to_have_text(before)
    expect(page.locator(".plot canvas")).to_be_visible()


def looked_twice_since(live: Live, page: Page) -> bool:
    """Waits until the console has looked at the cluster two times more, so that what changed was sent to the page."""
    times: set[int] = set()

    def told() -> bool:
        times.add(page.request.get(f"{live.url}/api/v1/cluster").json()["atMs"])
        return len(times) >= 3

    return wait_until(told, "three looks")


def test_a_paused_page_stays_as_it_is(live: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{live.url}/cluster")
    page.get_by_role("button", name="Pause").click()
    before = page.locator("#live_figures").inner_text()
    live.tandemq("send", "paused", "--count", "300", "--size", "2000")
    seen = looked_twice_since(live, page)
    assert seen, "the console itself has seen it"
    assert page.locator("#live_figures").inner_text() == before
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#live_figures")).not_to_have_text(before)


def test_the_master_dies_and_comes_back_before_the_eyes_of_a_person(own_pair: Live, tab: Tab) -> None:
    page, cluster = tab.page, own_pair.cluster
    page.goto(f"{own_pair.url}/replication")
    panel = page.locator("section.panel").first
    expect(panel.locator("header .status")).to_have_text("healthy")
    expect(panel.locator(".lane")).to_have_count(2)
    expect(panel.locator(".lane").nth(1)).to_contain_text("in sync")
    panel.locator(".lane").first.hover()  # the page does not stand still under the pointer
    cluster.kill(cluster.plan.master)
    expect(panel.locator("header .status")).to_contain_text("no master")
    expect(panel.locator(".lane").first).to_contain_text("absent for")
    expect(panel.locator(".lane").first).to_contain_text("unreachable")
    expect(page.locator("#live_health")).to_contain_text("no master")
    expect(panel.locator(".timeline").first).to_contain_text("the master, does not answer")
    again = own_pair.cluster
    again.start(again.plan.master)
    expect(panel.locator("header .status")).to_have_text("healthy", timeout=30_000)
    expect(panel.locator(".timeline").first).to_contain_text("answers again")
    expect(panel.locator(".timeline").first).to_contain_text("told by")


def test_a_slave_is_made_the_master_and_the_old_master_follows(own_pair: Live, tab: Tab) -> None:
    page, plan = tab.page, own_pair.cluster.plan
    old, new = plan.master.address, plan.brokers[1].address
    own_pair.tandemq("send", "switched", "--count", "50")
    page.goto(f"{own_pair.url}/replication")
    panel = page.locator("section.panel").first
    page.get_by_role("link", name="Make it the master…").click()
    form = page.locator("#switch")
    expect(form).to_contain_text(f"{old} takes no more messages")
    expect(form).to_contain_text(f"{new} becomes the master in epoch 2")
    button = form.get_by_role("button", name="Make it the master")
    form.get_by_label("Type broker-a to confirm").fill("broker-b")
    button.click()
    expect(form).to_be_visible(), "the browser does not send a wrong name"
    assert own_pair.json("ha", "status")[0]["epoch"] == 1
    form.get_by_label("Type broker-a to confirm").fill("broker-a")
    button.click()
    outcome = page.get_by_label("Outcome")
    expect(outcome).to_contain_text(f"{new} is the master now, epoch 2")
    expect(outcome).to_contain_text(f"before: master {old}, epoch 1; after: master {new}, epoch 2")
    expect(panel.locator(".lane").first).to_contain_text(new)
    expect(panel.locator("header .status")).to_have_text("healthy")
    nodes = {node["address"]: node["role"] for node in own_pair.json("ha", "status")}
    assert nodes == {new: "master", old: "slave"}
    own_pair.tandemq("send", "switched", "after the switch")
    page.goto(f"{own_pair.url}/audit")
    expect(page.locator("#list")).to_contain_text("make master")
    expect(page.locator("#list")).to_contain_text(f"master {old}, epoch 1")
    token = page.request.get(f"{own_pair.url}/api/v1/session").json()["csrf"]
    asked = {"group": "broker-a", "name": "broker-a", "address": old}
    done = page.request.post(
        f"{own_pair.url}/api/v1/replication/promote", data=asked, headers={"x-csrf-token": token}
    ).json()
    assert done["act"]["after"] == f"master {old}, epoch 3", "back again, by the API"


def test_a_name_server_that_is_down_is_a_warning_and_the_rest_is_shown(own_pair: Live, tab: Tab) -> None:
    page, cluster = tab.page, own_pair.cluster
    page.goto(f"{own_pair.url}/cluster")
    expect(page.locator("tr.member")).to_have_count(2)
    cluster.kill(cluster.plan.namesrvs[0])
    expect(page.locator("#live_servers")).to_contain_text("does not answer")
    expect(page.locator("tr.member").nth(1)).to_contain_text("in sync")


def test_keys_and_theme(live: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{live.url}/replication")
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.locator("label[title=Dark]").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.locator("label[title=Light]").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
