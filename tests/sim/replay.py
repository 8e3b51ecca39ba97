"""Runs a program in two processes that order their sets and dictionaries differently."""

import os
import subprocess
import sys


def outputs_of(program: str) -> list[str]:
    """Returns what the program prints in each of them."""
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in ("0", "7")
    ]
