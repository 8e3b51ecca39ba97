"""The option `--log-level` of daemons."""

from enum import Enum
from typing import Annotated

import typer


class LogLevel(Enum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", case_sensitive=False, help="The least serious lines that are logged.")
]
