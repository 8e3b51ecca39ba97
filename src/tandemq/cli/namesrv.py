"""`tandemq namesrv`: run a name server until it is told to stop."""

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from tandemq import logs
from tandemq.cli.config_file import Loaded, load
from tandemq.cli.garbage import LongLived
from tandemq.cli.log_level import LogLevel, LogLevelOption
from tandemq.namesrv.config import DEFAULT_PORT, NamesrvConfig
from tandemq.namesrv.server import NameServer
from tandemq.remoting.config import RemotingConfig

log = logging.getLogger("tandemq.namesrv")

app = typer.Typer(rich_markup_mode="rich")


@app.command()
def namesrv(
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="Property file (RocketMQ's namesrv.conf) or .toml.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one property; repeatable.")
    ] = None,
    listen_port: Annotated[
        int | None, typer.Option(help=f"Short for --set listenPort=...; default {DEFAULT_PORT}.")
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Start with names in the file that look mistyped.")
    ] = False,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run a name server until SIGTERM or Ctrl-C."""
    overrides = list(settings or [])
    if listen_port is not None:
        overrides.append(f"listenPort={listen_port}")
    loaded = load(
        config,
        (NamesrvConfig, RemotingConfig),
        overrides=overrides,
        defaults={"listenPort": str(DEFAULT_PORT)},
        lenient=lenient,
    )
    logs.setup(log_level.value, audit_path=loaded[RemotingConfig].audit_log_path)
    for warning in loaded.warnings:
        log.warning("config %s", warning)
    uvloop.run(run(loaded))


async def run(loaded: Loaded) -> None:
    """Serves until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    remoting = loaded[RemotingConfig]
    async with NameServer(loaded[NamesrvConfig], remoting) as server:
        LongLived().begin()
        sys.stdout.write(f"name server ready on {remoting.bind_address}:{server.remoting.port}\n")
        sys.stdout.flush()
        await stop.wait()
        log.info("stopping connections=%d", len(server.remoting.connections))
