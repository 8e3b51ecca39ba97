"""Whatever ends a command, as one sentence for people or one JSON object for programs, and as an exit code.

    1    an error; the sentence says what to do          130    Ctrl-C
    2    wrong usage; `--help` says what is right         0    the reader of our output left (`| head`)

With `--json` the sentence comes as `{"error": {"kind": …, "message": …}}`, on stderr as well. `--debug` shows the
traceback instead, for those who look for a mistake of ours.
"""

import errno
import json
import os
import sys
from typing import Any

import typer

from tandemq.errors import TandemError
from tandemq.printable import printable_lines

ERROR, USAGE, FEWER_COPIES, INTERRUPTED = 1, 2, 3, 130

# Typer brings a click of its own, or uses the one that is installed: these are the classes that it raises.
_USAGE: Any = typer.BadParameter.__mro__[1]
_SHOWN: Any = typer.BadParameter.__mro__[2]

_EXTRAS = {
    "pyspark": "spark",
    "pyarrow": "spark",
    "deltalake": "spark",
    "pandas": "spark",
    "py4j": "spark",
    "grpc": "spark",
}
"""Package that may be missing -> the extra that brings it."""


def wants_debug(arguments: list[str]) -> bool:
    """Takes `--debug` out of the command line, wherever it stands before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--debug" not in arguments[1:end] or arguments[1:2] == ["bench"]:
        return False
    arguments.remove("--debug")
    return True


def report(error: BaseException, *, as_json: bool) -> int:
    """Says what went wrong, on stderr; returns the exit code."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ERROR
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, BrokenPipeError):
        # The reader of our output left: no reason to complain, and nothing more to write at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, _SHOWN) and not as_json:
        _show_usage(error)
        return int(error.exit_code)
    if as_json:
        print(json.dumps({"error": {"kind": kind_of(error), "message": sentence(error)}}), file=sys.stderr)
    else:
        print(f"tandemq: {printable_lines(sentence(error))}", file=sys.stderr)
    return int(getattr(error, "exit_code", ERROR)) if isinstance(error, _SHOWN) else ERROR


def _show_usage(error: Any) -> None:
    try:
        from typer.rich_utils import rich_format_error

        rich_format_error(error)
    except ImportError:
        error.show()


def kind_of(error: BaseException) -> str:
    if isinstance(error, _USAGE):
        return "Usage"
    return type(error).__name__


def sentence(error: BaseException) -> str:
    """Returns what went wrong and what to do about it, in one sentence where we know it."""
    if isinstance(error, TandemError):
        return str(error)
    if isinstance(error, typer.Abort):
        return "aborted, nothing was changed"
    if isinstance(error, _SHOWN):
        return str(error.format_message())
    if isinstance(error, ModuleNotFoundError):
        return _missing(error)
    if isinstance(error, OSError):
        return _refused(error)
    detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"a mistake of ours: {detail}; the same command with --debug shows where, please report it"


def _missing(error: ModuleNotFoundError) -> str:
    package = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(package)
    if extra is None:
        return f"the Python package {package or error} is missing: install TandemQ again"
    return (
        f"{package} is not installed: Spark's packages are an extra, `pip install 'tandemq[{extra}]'` "
        "(from a clone, `./run spark …` brings them)"
    )


def _refused(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    what = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        return f"{where}another process has the port ({what}); stop it or choose another listenPort"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where}{what}; choose a place that you may write to, or start as another user"
    if error.errno == errno.ENOSPC:
        return f"{where}{what}; make room on that disk"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{where}{what}; is the path right, and does the directory above it exist?"
    return f"{where}{what}"
