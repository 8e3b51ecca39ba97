"""The C++ client inside PyPI's rocketmq 0.4.4, unmodified; the wheel has no transactions, SQL or request-reply."""

import pytest
from tests.peers import servers, stories

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

STORIES = [
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
    "batch-elements",
    "send-auto-create",
    "send-large-compressed",
    "ordered",
    "pull",
    "tags",
    "long-poll",
    "broadcast",
    "rebalance",
    "offsets-survive",
    "delay",
    "retry-dead-letter",
]


ONE_MESSAGE = "the real broker stores this client's batch as one message: see clients/cpp/scenarios.py"
IMPOSSIBLE = {
    ("rocketmq-4.9.7", "batch-elements"): ONE_MESSAGE,
    ("rocketmq-5.3.3", "batch-elements"): ONE_MESSAGE,
    ("rocketmq-5.3.3", "retry-dead-letter"): (
        "the real 5.3.3 fails with a NullPointerException when a message comes back for the last time without "
        "originTopic, which this client never sends; the client then drops the message"
    ),
}
"""What a real broker can't do with this client, and ours does."""


@pytest.fixture(scope="module", params=servers.sides())
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def told(side: str, tmp_path_factory: pytest.TempPathFactory) -> stories.Told:
    possible = [story for story in STORIES if (side, story) not in IMPOSSIBLE]
    return stories.run("cpp", side, tmp_path_factory.mktemp("cpp"), *possible)


@pytest.mark.parametrize("story", STORIES)
def test_story(side: str, told: stories.Told, story: str) -> None:
    """One thing applications do with this client."""
    if reason := IMPOSSIBLE.get((side, story)):
        pytest.skip(reason)
    told.check(story)
