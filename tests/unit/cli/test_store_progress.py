import pytest

from tandemq.cli import store_progress
from tandemq.cli.store_progress import MebibyteBar


def test_bytes_are_shown_as_mebibytes(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    class Shown:
        def __init__(self, text: str, total: int) -> None:
            assert (text, total) == ("reading (MiB)", 5)

        def __enter__(self) -> object:
            return steps.append

        def __exit__(self, *_: object) -> None:
            steps.append(-1)

    monkeypatch.setattr(store_progress, "progress", Shown)
    with MebibyteBar("reading") as step:
        for done in (1 << 20, (3 << 20) + 5, 5 << 20):
            step(done, 5 << 20)
    assert steps == [1, 2, 2, -1]


def test_work_that_reports_nothing_shows_nothing() -> None:
    with MebibyteBar("reading"):
        pass
