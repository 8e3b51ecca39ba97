"""Upstream's Java client, unmodified, in two generations: what it can do with the real broker it can do with ours."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.peers import servers, stories
from tests.peers.programs import JAVA_VERSIONS

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

STORIES = [
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
    "send-auto-create",
    "send-large-compressed",
    "send-too-large",
    "pull-statuses",
    "lite-pull",
    "long-poll",
    "tags",
    "sql",
    "ordered",
    "broadcast",
    "rebalance",
    "offsets-survive",
    "new-group-young-queue",
    "first-message",
    "delay",
    "retry-dead-letter",
    "transaction",
    "transaction-check",
    "query",
    "search-offset",
    "request-reply",
]


PAIRS = [(version, side) for side in servers.sides() for version in JAVA_VERSIONS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Future[stories.Told]]]:
    """Both generations at once, each with servers of its own: they mostly wait for their timers."""
    with ThreadPoolExecutor(len(JAVA_VERSIONS)) as pool:
        yield {
            (version, side): pool.submit(stories.run, f"java-{version}", side, tmp_path_factory.mktemp("java"))
            for version, side in PAIRS
        }


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def told(request: pytest.FixtureRequest, runs: dict[tuple[str, str], Future[stories.Told]]) -> stories.Told:
    return runs[request.param].result()


@pytest.mark.parametrize("story", STORIES)
def test_story(told: stories.Told, story: str) -> None:
    """One thing applications do with this client."""
    told.check(story)
