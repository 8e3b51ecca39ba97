from pathlib import Path

import pytest

from tandemq import clock
from tandemq.clock import FileShiftedClock, SystemClock, process_clock

HOUR_MS = 3_600_000


def test_a_process_has_the_machines_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(clock.SHIFT_FILE, raising=False)
    assert type(process_clock()) is SystemClock


def test_a_number_in_a_file_moves_the_wall_clock_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "shift"
    monkeypatch.setenv(clock.SHIFT_FILE, str(path))
    monkeypatch.setattr(clock, "SHIFT_READ_S", 0)
    shifted, real = process_clock(), SystemClock()
    assert isinstance(shifted, FileShiftedClock)

    def hours() -> int:
        return round((shifted.wall_ms() - real.wall_ms()) / HOUR_MS)

    assert hours() == 0
    path.write_text(str(-3 * HOUR_MS))
    assert hours() == -3
    path.write_text("")
    assert hours() == -3, "somebody is writing it"
    path.write_text(str(5 * HOUR_MS))
    assert hours() == 5
    assert abs(shifted.monotonic() - real.monotonic()) < HOUR_MS / 1000
