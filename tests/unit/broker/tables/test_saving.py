"""A table that the disk refused is not called saved, and is saved as soon as the disk takes it."""

import asyncio
from pathlib import Path

import pytest

from tandemq.broker.tables import saving
from tandemq.broker.tables.saving import SavingFile
from tandemq.errors import StoreError
from tandemq.testing.waiting import until


class Refused(SavingFile):
    """Its disk is full until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__(Path("topics.json"))
        self.full = True
        self.writes = 0

    async def _write(self) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.writes += 1


def test_a_full_disk_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "RETRY_SECONDS", 0.001)

    async def story() -> None:
        file = Refused()
        file.mark()
        with pytest.raises(StoreError, match=r"topics.json was not saved .*No space left"):
            await file.saved()
        file.full = False
        await until(lambda: file.writes == 1, "it is saved without being asked again")
        await file.saved()

    asyncio.run(story())


def test_a_stop_waits_for_no_disk() -> None:
    async def story() -> None:
        file = Refused()
        file.mark()
        await file.settled()
        assert file.writes == 0

    asyncio.run(story())
