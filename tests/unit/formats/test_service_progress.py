"""The record that says how far services have come."""

import pytest

from tandemq.formats.log_mark import decode_mark
from tandemq.formats.service_progress import ServiceProgress


def test_it_says_what_it_was_told() -> None:
    progress = ServiceProgress({18: 4, 1: 7}, half=5, op=3)
    assert ServiceProgress.decode(progress.encode()) == progress
    assert decode_mark(progress.encode()) is None, "it is no mark that changes queues"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"\xff", b'{"kind":"other","delay":{},"half":0,"op":0}', b'{"kind":"progress","delay":{},"half":0}',
        b'{"kind":"progress","delay":{"1":-2},"half":0,"op":0}', b'{"kind":"progress","delay":{"x":2},"half":0,"op":0}',
    ],
)  # fmt: skip
def test_what_is_none_counts_for_nothing(body: bytes) -> None:
    assert ServiceProgress.decode(body) is None
