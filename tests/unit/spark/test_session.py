"""The settings of a session: sockets have a short place of their own, workers run our interpreter."""

from pathlib import Path

from tandemq.spark.session import _SOCKET_PATH_MAX, TUNED, _socket_directory, tasks_at_a_time


def test_sockets_of_killed_drivers_have_a_short_place_of_their_own(tmp_path: Path) -> None:
    """A Unix socket's path has 108 bytes; Spark never removes those of a driver that was killed."""
    deep = tmp_path / ("d" * 80)
    assert len(str(_socket_directory(deep))) <= _SOCKET_PATH_MAX
    assert _socket_directory(deep) == _socket_directory(deep) != _socket_directory(tmp_path / ("e" * 80))


def test_every_setting_is_text() -> None:
    """Spark takes nothing else."""
    assert all(key.startswith("spark.") and isinstance(value, str) for key, value in TUNED.items())


def test_a_session_that_does_not_tell_runs_one_task_at_a_time() -> None:
    """Spark Connect has no SparkContext."""
    assert tasks_at_a_time(object()) == 1
