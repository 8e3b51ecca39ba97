"""`tandemq bench`: the benchmarks, which live beside the package in a clone, not in it."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import tandemq
from tandemq.errors import ConfigError

app = typer.Typer(help="List and run the benchmarks (from a clone).", add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
def bench(
    arguments: Annotated[list[str] | None, typer.Argument(help="As ./run bench takes them; none lists them.")] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.1, help="How long `soak` runs (default: an hour).")
    ] = None,
) -> None:
    """List and run the benchmarks (from a clone)."""
    root = Path(tandemq.__file__).resolve().parents[2]
    if not (root / "bench" / "__main__.py").exists():
        raise ConfigError("the benchmarks are not part of the installed package: clone the project and use ./run bench")
    os.chdir(root)
    options = ["--minutes", f"{minutes:g}"] if minutes is not None else []
    os.execv(sys.executable, [sys.executable, "-m", "bench", *(arguments or []), *options])
