"""The C++ client inside PyPI's rocketmq 0.4.4, unmodified; the wheel has no transactions, SQL or request-reply."""

import pytest
from tests.peers import servers, stories

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(600)]

STORIES = [
    "send-sync",
    "send-async",
    "send-oneway",
    "send-batch",
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


@pytest.fixture(scope="module", params=servers.sides())
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> stories.Told:
    # The real broker stores this client's batches as one opaque message: see clients/cpp/scenarios.py.
    ours_alone = ["batch-elements"] if request.param == "ours" else []
    return stories.run("cpp", request.param, tmp_path_factory.mktemp("cpp"), *STORIES, *ours_alone)


@pytest.mark.parametrize("story", STORIES)
def test_story(told: stories.Told, story: str) -> None:
    """One thing applications do with this client."""
    told.check(story)


def test_batch_elements(told: stories.Told) -> None:
    """A batch of this client becomes as many messages as it has elements: more than the real broker does with it."""
    if "batch-elements" not in told.outcomes:
        pytest.skip("the real broker stores this client's batch as one message")
    told.check("batch-elements")
