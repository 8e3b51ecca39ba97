"""What ends a command, as a sentence and an exit code."""

import errno

import pytest
import typer

from tandemq.cli import failures
from tandemq.errors import ClientError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ClientError("no"), 1),
        (typer.BadParameter("no"), 2),
        (typer.Exit(3), 3),
        (SystemExit(4), 4),
        (KeyboardInterrupt(), 130),
        (RuntimeError("no"), 1),
    ],
)
def test_exit_codes(error: BaseException, code: int) -> None:
    assert failures.report(error, as_json=True) == code


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EADDRINUSE, "Address already in use"), "another process has the port"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x: permission denied; choose a place"),
        (
            OSError(errno.ENOENT, "No such file or directory", "/proc/x"),
            "/proc/x: no such file or directory; is the path",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), "make room"),
        (ModuleNotFoundError("x", name="deltalake.table"), "deltalake is not installed"),
        (KeyError("x"), "a mistake of ours: KeyError: 'x'; the same command with --debug"),
    ],
)
def test_sentences(error: Exception, told: str) -> None:
    assert told in failures.sentence(error)


def test_debug_may_stand_anywhere() -> None:
    arguments = ["tandemq", "topic", "list", "--debug"]
    assert failures.wants_debug(arguments)
    assert arguments == ["tandemq", "topic", "list"]
    assert not failures.wants_debug(["tandemq", "send", "t", "--", "--debug"])
