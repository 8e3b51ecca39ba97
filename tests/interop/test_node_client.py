"""npm's ali-ons 3.12.0, unmodified; it has no batch, one-way, pull, transactions or request-reply."""

import pytest
from tests.peers import servers, stories

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

STORIES = [
    "send-sync",
    "send-async",
    "send-large-compressed",
    "ordered-send",
    "tags",
    "sql",
    "long-poll",
    "broadcast",
    "rebalance",
    "offsets-survive",
    "delay",
    "retry-dead-letter",
]


@pytest.fixture(scope="module", params=servers.sides())
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stories.Told:
    return stories.run("node", request.param, tmp_path_factory.mktemp("node"))


@pytest.mark.parametrize("story", STORIES)
def test_story(told: stories.Told, story: str) -> None:
    """One thing applications do with this client."""
    told.check(story)
