"""Every page against a live pair: what it shows, how it looks, and the acts that belong to it."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.console.axe import serious_faults
from tests.console.conftest import ARTIFACTS, DESKTOP, PHONE, Live, Tab

from tandemq.client import sync
from tandemq.client.config import ClientConfig, ConsumeFrom
from tandemq.testing.waiting import wait_until

pytestmark = pytest.mark.slow

LONG_TOPIC, LONG_GROUP = "a-long-topic-" + "x" * 110, "a-long-group-" + "y" * 100
"""About as long as names may be."""
PAGES = {
    "cluster": "/cluster",
    "replication": "/replication",
    "switch": "/replication?group=broker-a&promote={slave}",
    "topics": "/topics",
    "topic-new": "/topics/new",
    "topic": "/topics/shown",
    "messages": "/messages?topic=shown&pick=broker-a/0@0",
    "groups": "/groups",
    "group": "/groups/readers?topic=shown&to=earliest",
    "dead-letters": "/dead-letters",
    "dead-letter-group": "/dead-letters/quitters",
    "waiting": "/waiting?level=16",
    "clients": "/clients",
    "producers": "/clients?kind=producers",
    "audit": "/audit",
    "search": "/search?q=shown",
    "api": "/api/docs",
    "long-topic": f"/topics/{LONG_TOPIC}",
    "long-message": f"/messages?topic={LONG_TOPIC}&how=key&value={'k' * 120}",
    "long-group": f"/groups/{LONG_GROUP}?topic={LONG_TOPIC}&to=latest",
    "not-found": "/topics/nobody-knows-it",
}


@pytest.fixture(scope="module")
def filled(live: Live) -> Live:
    """Messages, a reader that is behind, a group that gave up, delayed messages."""
    live.tandemq("topic", "create", "shown", "--queues", "2")
    lines = "".join(json.dumps({"order": n, "state": "paid"}) + "\n" for n in range(40))
    live.tandemq("send", "shown", "--tag", "paid", "--key", "order-1", stdin=lines.encode())
    live.tandemq("send", "shown", "later", "--delay", "16")
    _read(live, "readers")
    live.tandemq("send", "shown", stdin=b"one more\n" * 4)
    _give_up(live, "quitters")
    live.tandemq("topic", "create", LONG_TOPIC, "--queues", "1")
    live.tandemq("send", LONG_TOPIC, "x" * 2000, "--key", "k" * 120, "--tag", "t" * 100)
    live.tandemq("consume", LONG_TOPIC, "--group", LONG_GROUP, "--from", "earliest", "--limit", "1")
    return live


def _read(live: Live, group: str) -> None:
    live.tandemq("consume", "shown", "--group", group, "--from", "earliest", "--limit", "40")


def _give_up(live: Live, group: str) -> None:
    """A consumer that fails with everything, and whose messages are not tried again."""

    def fail(messages: object) -> None:
        raise ValueError("this consumer takes nothing")

    config = ClientConfig(namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET, reconsume_max=0)
    consumer = sync.PushConsumer(group, fail, config=config)
    consumer.subscribe("shown", "paid")
    with consumer:
        wait_until(
            lambda: sum(item["messages"] for item in live.json("dlq", "list") if item["group"] == group) >= 3,
            "dead letters",
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["desk", "phone"])
def test_pages_are_whole_on_a_desk_and_on_a_phone_and_fit_for_everybody(
    filled: Live, browser: Browser, width: str, scheme: str
) -> None:
    """Nothing is cut off at the side, no script fails, axe finds no serious fault; the pictures are kept to look at."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    size = DESKTOP if width == "desk" else PHONE
    context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for name, path in PAGES.items():
        page.goto(filled.url + path.format(slave=filled.cluster.plan.brokers[1].address), wait_until="load")
        expect(page.locator("#pause")).to_be_visible()
        page.screenshot(path=ARTIFACTS / f"{name}-{width}-{scheme}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (
            f"{name} is wider than a {width}"
        )
        assert serious_faults(page) == [], name
    context.close()
    assert complaints == []


def test_a_topic_is_created_changed_and_deleted(live: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{live.url}/topics/new")
    page.get_by_label("Name", exact=True).fill("by-hand")
    page.get_by_label("Read queues").fill("3")
    page.get_by_label("Write queues").fill("3")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("h1")).to_have_text("by-hand")
    expect(page.get_by_label("Outcome")).to_contain_text("before: not there; after: 3 read and 3 write queues, rw")
    assert "by-hand" in live.tandemq("topic", "list")
    page.get_by_role("link", name="Change").click()
    page.locator("#change").get_by_label("Write queues").fill("5")
    page.locator("#change").get_by_role("button", name="Change").click()
    expect(page.get_by_label("Outcome")).to_contain_text("after: 3 read and 5 write queues")
    page.get_by_text("Delete this topic…").click()
    button = page.get_by_role("button", name="Delete topic")
    page.get_by_label("Type by-hand to confirm").fill("by-han")
    button.click()
    expect(page).to_have_url(f"{live.url}/topics/by-hand?done=2"), "the browser does not send a wrong name"
    page.get_by_label("Type by-hand to confirm").fill("by-hand")
    button.click()
    expect(page.locator("h1")).to_have_text("Topics")
    assert "by-hand" not in live.tandemq("topic", "list")
    page.goto(f"{live.url}/audit")
    expect(page.locator("#list")).to_contain_text("delete topic")
    expect(page.locator("#list")).to_contain_text("DELETE_TOPIC_IN_BROKER")


def test_the_server_checks_the_typed_name_too(live: Live, tab: Tab) -> None:
    live.tandemq("topic", "create", "stays")
    page = tab.page
    page.goto(f"{live.url}/topics/stays")
    page.get_by_text("Delete this topic…").click()
    page.evaluate("document.querySelector('.destroy input[name=name]').removeAttribute('pattern')")
    page.get_by_label("Type stays to confirm").fill("other")
    page.on("console", lambda message: tab.complaints.clear())  # the browser notes the status 400, which is meant
    page.get_by_role("button", name="Delete topic").click()
    expect(page.locator("h1")).to_have_text("Not done")
    assert "stays" in live.tandemq("topic", "list")
    tab.complaints.clear()


def test_messages_are_sent_found_shown_and_sent_again(live: Live, tab: Tab) -> None:
    page = tab.page
    live.tandemq("topic", "create", "letters", "--queues", "1")
    page.goto(f"{live.url}/messages?topic=letters&form=send")
    page.get_by_label("Body").fill('{"hello": "wörld"}')
    page.get_by_label("Tag").fill("greeting")
    page.get_by_label("Keys").fill("k-1 k-2")
    page.get_by_label("Properties").fill("tone=warm")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_label("Outcome")).to_contain_text("SEND_OK")
    expect(page.locator("pre.json")).to_contain_text('"hello": "wörld"')
    disks = page.locator(".steps")
    wait_until(lambda: page.reload() and "Copied, 2 disks" in disks.inner_text(), disks.inner_text)
    page.get_by_role("link", name="Hex").click()
    expect(page.locator("pre.json")).to_contain_text("7b 22 68 65")
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_label("Outcome")).to_contain_text("after: broker-a/0@1")
    for how, value, count in (("key", "k-2", 2), ("tag", "greeting", 2), ("body", "wörld", 2), ("body", "nothing", 0)):
        page.goto(f"{live.url}/messages?topic=letters&how={how}&value={value}")
        expect(page.locator("#live_list tbody tr")).to_have_count(count)
    read = live.json("message", "key", "letters", "k-1")
    assert [item["body"] for item in read] == ['{"hello": "wörld"}'] * 2
    page.goto(f"{live.url}/search?q={read[0]['messageId']}")
    page.get_by_role("link", name="Find the message in all topics").click()
    expect(page.locator("#message-h")).to_have_text(read[0]["messageId"])


def test_the_live_tail_shows_what_comes_and_holds_when_paused(live: Live, tab: Tab) -> None:
    page = tab.page
    live.tandemq("topic", "create", "flow", "--queues", "1")
    page.goto(f"{live.url}/messages?topic=flow&how=tail")
    expect(page.locator("#live_list")).to_contain_text("Nothing found")
    live.tandemq("send", "flow", "first words")
    expect(page.locator("#live_list")).to_contain_text("first words")
    page.get_by_role("button", name="Pause").click()
    live.tandemq("send", "flow", "second words")
    expect(page.locator("#live_list")).not_to_contain_text("second words")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#live_list")).to_contain_text("second words")


def test_a_group_is_moved_after_a_dry_run(filled: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{filled.url}/groups/readers")
    before = {row["queueId"]: row["consumerOffset"] for row in filled.json("group", "lag", "readers")
              if row["topic"] == "shown"}  # fmt: skip
    reset = page.locator("#reset")
    reset.locator("select[name=to]").select_option("shift")
    reset.get_by_label("Offset or shift").fill("-3")
    reset.get_by_role("button", name="Dry run").click()
    expect(page.locator("#reset tbody tr")).to_have_count(2)
    expect(page.locator("#reset tbody tr").first).to_contain_text("3 come again")
    told = {row["queueId"]: row["consumerOffset"] for row in filled.json("group", "lag", "readers")
            if row["topic"] == "shown"}  # fmt: skip
    assert told == before, "a dry run changes nothing"
    page.locator("#reset").get_by_label("Type readers to confirm").fill("readers")
    page.get_by_role("button", name="Move the group").click()
    expect(page.get_by_label("Outcome")).to_contain_text("2 of 2 queues moved")
    after = {row["queueId"]: row["consumerOffset"] for row in filled.json("group", "lag", "readers")
             if row["topic"] == "shown"}  # fmt: skip
    assert after == {queue: offset - 3 for queue, offset in before.items()}


def test_selected_dead_letters_are_sent_again_with_an_outcome_each(filled: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{filled.url}/dead-letters")
    page.locator("#list").get_by_role("link", name="quitters").click()
    total = filled.json("topic", "status", "shown")
    count = sum(row["maxOffset"] for row in total)
    boxes = page.locator("input[data-select]")
    boxes.nth(0).check()
    boxes.nth(2).check()
    expect(page.locator("#selected")).to_have_text("2")
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_label("Outcome")).to_contain_text("2 of 2 sent")
    expect(page.locator(".outcomes li")).to_have_count(2)
    expect(page.locator(".outcomes li").first).to_contain_text("SEND_OK: shown broker-a/")
    assert sum(row["maxOffset"] for row in filled.json("topic", "status", "shown")) == count + 2


def test_hostile_messages_are_shown_harmlessly(live: Live, tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    live.tandemq("topic", "create", "hostile", "--queues", "1")
    evil = "</pre><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\x1b[2J"
    (tmp_path / "evil").write_text(evil)
    live.tandemq("send", "hostile", "--file", str(tmp_path / "evil"), "--tag", "<b>t</b>", "--key", "<i>k</i>")
    (tmp_path / "large").write_bytes(b"<script>x</script>" * 233_000)
    live.tandemq("send", "hostile", "--file", str(tmp_path / "large"))
    page.goto(f"{live.url}/messages?topic=hostile&pick=broker-a/0@0&view=text")
    expect(page.locator("pre.json")).to_contain_text("<script>document.title='owned'</script>")
    expect(page.locator("pre.json")).to_contain_text("\\x1b[2J")
    expect(page.locator("#live_list")).to_contain_text("<b>t</b>")
    assert page.title() != "owned"
    for view in ("json", "text", "hex"):
        page.goto(f"{live.url}/messages?topic=hostile&pick=broker-a/0@1&view={view}")
        expect(page.locator("#message")).to_contain_text("4.00 MiB, the first")
        assert len(page.content()) < 400_000
    with page.expect_download() as got:
        page.get_by_role("link", name="Download").click()
    assert got.value.path().stat().st_size == 18 * 233_000


def test_a_broker_is_taken_out_of_writing_and_given_back(live: Live, tab: Tab) -> None:
    page = tab.page
    live.tandemq("topic", "create", "still")
    for button, perm in (("Take out of writing", "r"), ("Give writing back", "rw")):
        page.goto(f"{live.url}/cluster?broker=broker-a#writing")
        page.get_by_label("Type broker-a to confirm").fill("broker-a")
        page.get_by_role("button", name=button).click()
        expect(page.get_by_label("Outcome")).to_contain_text("topics of broker-a")
        route = live.json("topic", "route", "still")
        assert {item["perm"] for item in route} == {perm}


def test_filters_and_pages_are_in_the_url(live: Live, tab: Tab) -> None:
    page = tab.page
    page.goto(f"{live.url}/topics?kind=system")
    page.get_by_role("searchbox", name="Part of the name").fill("TBW")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    assert "q=TBW" in page.url
    page.reload()
    expect(page.locator("#list tbody tr")).to_have_count(1)
    page.goto(f"{live.url}/topics?kind=user&q=no-topic-has-this")
    expect(page.locator("#list")).to_contain_text("All of them")
