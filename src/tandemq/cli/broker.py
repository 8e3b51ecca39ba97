"""`tandemq broker -c broker.conf`: a broker in this process, from RocketMQ's own property file; SIGTERM stops it."""

import asyncio
import gc
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from tandemq.cli.config_file import Loaded, load

app = typer.Typer(help="Run a broker; promote or demote one.")


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    path: Annotated[
        Path | None, typer.Option("--config", "-c", help="A broker.conf of RocketMQ, or a .toml file.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, over what the file says; repeatable.")
    ] = None,
    namesrv: Annotated[str, typer.Option("--namesrv", "-n", help="Short for --set namesrvAddr=…")] = "",
    log_level: Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run a broker until SIGTERM or Ctrl-C, or use one of the commands below on a running one."""
    if context.invoked_subcommand is not None:
        return
    from tandemq import logs
    from tandemq.broker.config import BrokerConfig
    from tandemq.remoting.config import RemotingConfig
    from tandemq.replication.config import ReplicationConfig
    from tandemq.store.config import StoreConfig

    flags = list(overrides or [])
    if namesrv:
        flags.append(f"namesrvAddr={namesrv}")
    loaded = load(path, (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig), overrides=flags)
    for warning in loaded.warnings:
        print(f"note: {warning}", file=sys.stderr)
    logs.setup(log_level.upper())
    _run(loaded)


def _run(loaded: Loaded) -> None:
    import uvloop

    uvloop.run(_serve(loaded))


async def _serve(loaded: Loaded) -> None:
    from tandemq.broker.broker import Broker
    from tandemq.broker.config import BrokerConfig
    from tandemq.cli.namesrv import access_control
    from tandemq.remoting.config import RemotingConfig
    from tandemq.replication.config import ReplicationConfig
    from tandemq.store.config import StoreConfig

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    running = Broker(
        loaded[BrokerConfig],
        loaded[StoreConfig],
        loaded[RemotingConfig],
        loaded[ReplicationConfig],
        authenticate=access_control(loaded[RemotingConfig]),
    )
    async with running:
        gc.freeze()  # what start-up made stays for good: later collections need not look at it
        print(f"The broker[{running.live.broker.broker_name}, {running.address}] boot success.", flush=True)
        await stopped.wait()


Address = Annotated[str, typer.Argument(help="host:port of the broker.")]


@app.command()
def promote(
    address: Address,
    role: Annotated[str, typer.Option(help="SYNC_MASTER or ASYNC_MASTER.")] = "SYNC_MASTER",
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if it was not in sync, or without replicas that should be heard first."),
    ] = False,
) -> None:
    """Make a slave the master of its group; its old master, if it runs, hands over and follows."""
    _order(address, "PROMOTE", {"role": role, "force": "true" if force else "false"})


@app.command()
def demote(address: Address) -> None:
    """Make a master a slave: no more writes, its slaves get everything, then it follows the next master."""
    _order(address, "DEMOTE", {})


def _order(address: str, name: str, ext: dict[str, str]) -> None:
    from tandemq.cli.render import client_config, run
    from tandemq.client.admin import Admin
    from tandemq.codec.codes import ResponseCode
    from tandemq.replication.metadata import PairCode

    async def ask() -> str:
        async with Admin(config=client_config(address)) as admin:
            session = admin.session
            reply = await session.remoting.invoke(address, session.command(PairCode[name], ext), 30.0)
            reply.raise_for_code(ResponseCode.SUCCESS)
            return reply.remark or "done"

    print(run(ask()))
