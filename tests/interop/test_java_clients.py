"""Upstream's Java client, unmodified, in two generations: what it can do with the real broker it can do with ours."""

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
    "delay",
    "retry-dead-letter",
    "transaction",
    "transaction-check",
    "query",
    "search-offset",
    "request-reply",
]


@pytest.fixture(scope="module", params=[(v, side) for side in servers.sides() for v in JAVA_VERSIONS], ids="-".join)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stories.Told:
    version, side = request.param
    return stories.run(f"java-{version}", side, tmp_path_factory.mktemp("java"))


@pytest.mark.parametrize("story", STORIES)
def test_story(told: stories.Told, story: str) -> None:
    """One thing applications do with this client."""
    told.check(story)
