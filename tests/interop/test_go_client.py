"""Apache's Go client rocketmq-client-go/v2 v2.1.2, unmodified."""

import pytest
from tests.peers import servers, stories

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

STORIES = [
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
    "send-large-compressed",
    "pull",
    "poll",
    "tags",
    "sql",
    "long-poll",
    "ordered",
    "broadcast",
    "rebalance",
    "offsets-survive",
    "delay",
    "retry-dead-letter",
    "transaction",
    "transaction-check",
    "request-reply",
]


@pytest.fixture(scope="module", params=servers.sides())
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stories.Told:
    return stories.run("go", request.param, tmp_path_factory.mktemp("go"))


@pytest.mark.parametrize("story", STORIES)
def test_story(told: stories.Told, story: str) -> None:
    """One thing applications do with this client."""
    told.check(story)
