"""`tandemq broker -c broker.conf`: a broker in this process, from RocketMQ's own property file; SIGTERM stops it."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandemq.cli.config_file import Loaded, load
from tandemq.cli.garbage import LongLived
from tandemq.cli.log_level import LogLevel, LogLevelOption
from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv
from tandemq.cli.suggestions import complete_broker
from tandemq.clock import process_clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tandemq.broker.config import BrokerConfig
    from tandemq.client.session import Session
    from tandemq.remoting.config import RemotingConfig
    from tandemq.replication.config import ReplicationConfig

app = typer.Typer(help="Run a broker; list, configure, promote or demote brokers.")

KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--ha-key-file",
        envvar="TANDEMQ_HA_KEY_FILE",
        help="File whose first line is the group's haSharedKey, which proves the order; else an admin account must.",
    ),
]


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
    groups: Annotated[
        int,
        typer.Option("--groups", min=0, max=64, help="Run this many groups, a process and a core each (brokerGroups)."),
    ] = 0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Start with names in the file that look mistyped.")
    ] = False,
    log_level: LogLevelOption = LogLevel.INFO,
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
    if groups:
        flags.append(f"brokerGroups={groups}")
    classes = (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig)
    loaded = load(path, classes, overrides=flags, lenient=lenient)
    for warning in loaded.warnings:
        print(f"note: {warning}", file=sys.stderr)
    logs.setup(log_level.value, audit_path=loaded[RemotingConfig].audit_log_path)
    if loaded[BrokerConfig].broker_groups > 1:
        from tandemq.cli.groups import serve_groups

        own = ["--log-level", log_level.value, *(["-c", str(path)] if path is not None else [])]
        own += ["--lenient"] if lenient else []
        own += [word for flag in flags for word in ("--set", flag)]
        asyncio.run(serve_groups(loaded[BrokerConfig], loaded[RemotingConfig], loaded[ReplicationConfig], own))
        return
    _run(loaded)


def _run(loaded: Loaded) -> None:
    import uvloop

    uvloop.run(_serve(loaded))


def check_ports(broker: "BrokerConfig", remoting: "RemotingConfig", replication: "ReplicationConfig") -> None:
    """Raises ConfigError for a port that is taken, before the store is opened and anything is written."""
    from tandemq.errors import ConfigError

    if remoting.listen_port == 0:
        return
    host = remoting.bind_address or "0.0.0.0"
    ha_port = replication.ha_listen_port or remoting.listen_port + 1
    wanted = {"listenPort": remoting.listen_port, "haListenPort": ha_port}
    if broker.vip_port_enable:
        wanted["listenPort - 2 (vipPortEnable)"] = remoting.listen_port - 2
    for name, port in wanted.items():
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise ConfigError(
                    f"{name}={port}, bindAddress={host}: can't listen there ({os.strerror(error.errno or 0).lower()}); "
                    "another process may have the port: stop it or choose another listenPort"
                ) from None


async def _serve(loaded: Loaded) -> None:
    from tandemq.broker.broker import Broker
    from tandemq.broker.config import BrokerConfig
    from tandemq.cli.group_plan import check_layout
    from tandemq.cli.groups import names_in
    from tandemq.remoting.config import RemotingConfig
    from tandemq.replication.config import ReplicationConfig
    from tandemq.store.config import StoreConfig

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    check_layout(loaded[BrokerConfig].store_root, 1, names_in)
    check_ports(loaded[BrokerConfig], loaded[RemotingConfig], loaded[ReplicationConfig])
    running = Broker(
        loaded[BrokerConfig],
        loaded[StoreConfig],
        loaded[RemotingConfig],
        loaded[ReplicationConfig],
        process_clock(),
    )
    async with running:
        LongLived().begin()
        print(f"The broker[{running.live.broker.broker_name}, {running.address}] boot success.", flush=True)
        await stopped.wait()


Address = Annotated[str, typer.Argument(help="host:port of the broker.", autocompletion=complete_broker)]


@app.command("list")
def list_(namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """List the brokers that name servers know, with versions, rates and disks."""
    from tandemq.cli.broker_admin import list_brokers

    list_brokers(namesrv, as_json)


@app.command()
def config(
    address: Address,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: change it at run time; repeatable.")
    ] = None,
    pattern: Annotated[str, typer.Option("--filter", help="Only options whose name contains this.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Print the options in force on a running broker, or change some."""
    from tandemq.cli.broker_admin import show_or_change_config

    show_or_change_config(address, assignments or [], pattern, namesrv, as_json)


@app.command()
def promote(
    address: Address,
    role: Annotated[str, typer.Option(help="SYNC_MASTER or ASYNC_MASTER.")] = "SYNC_MASTER",
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Go on without replicas that can't be heard, though they may hold acknowledged messages.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="The former name of --accept-loss.")] = False,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Make a slave the master of its group; its old master, if it runs, hands over and follows.

    Without a flag nothing that was acknowledged at two or more copies is lost.
    """
    from tandemq.client import orders

    if force:
        print("note: --force is now called --accept-loss", file=sys.stderr)
    loses = accept_loss or force
    _order(address, key_file, lambda session: orders.promote(session, address, role, accept_loss=loses), as_json)


@app.command()
def demote(address: Address, key_file: KeyFile = None, as_json: Json = False) -> None:
    """Make a master a slave: no more writes, its slaves get everything, then it follows the next master."""
    from tandemq.client import orders
    from tandemq.codec.codes import OperatorCode

    _order(address, key_file, lambda session: orders.order(session, address, OperatorCode.DEMOTE, {}), as_json)


def _order(address: str, key_file: Path | None, give: "Callable[[Session], Awaitable[str]]", as_json: bool) -> None:
    from tandemq.cli.connection import client_config_with_key
    from tandemq.cli.render import print_outcome, run
    from tandemq.client.admin import Admin

    async def ask() -> str:
        async with Admin(config=client_config_with_key(address, key_file)) as admin:
            return await give(admin.session)

    print_outcome(run(ask()), as_json=as_json, address=address)
