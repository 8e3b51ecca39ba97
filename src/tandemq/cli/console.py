"""`tandemq console`: see a cluster in a browser and act on it."""

import asyncio
import logging
import sys
from typing import Annotated

import typer
import uvloop

from tandemq import logs
from tandemq.cli.broker import KeyFile
from tandemq.cli.connection import client_config_with_key
from tandemq.cli.log_level import LogLevel, LogLevelOption
from tandemq.cli.render import DEFAULT_NAMESRV, Namesrv, client_config, stop_event
from tandemq.console.access import is_loopback
from tandemq.console.server import ConsoleServer, parse_listen

log = logging.getLogger("tandemq.console")

app = typer.Typer(rich_markup_mode="rich")

DEFAULT_LISTEN = "127.0.0.1:8088"


@app.command()
def console(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    key_file: KeyFile = None,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Serve the console until SIGTERM or Ctrl-C; open the address it prints in a browser.

    It shows any cluster of TandemQ or RocketMQ and keeps nothing on disk. Where the brokers control access, people sign
    in with an account of theirs; else acts are taken from this machine only.
    """
    host, port = parse_listen(listen)
    logs.setup(log_level.value)
    keyed = client_config_with_key(namesrv, key_file) if key_file is not None else None
    uvloop.run(_serve(ConsoleServer(client_config(namesrv), host, port, keyed=keyed), host))


async def _serve(console: ConsoleServer, host: str) -> None:
    stop = stop_event()
    async with console as server:
        if not is_loopback(host):
            log.warning("the console is reachable from other machines over plain HTTP; put TLS in front of it")
        sys.stdout.write(f"console ready on {server.url}\n")
        sys.stdout.flush()
        await asyncio.shield(stop.wait())
