"""`tandemq ha`: each broker's replication, why one that is not in sync is not, and how to take one out."""

import asyncio
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tandemq.cli import ha_view
from tandemq.cli.ha_nodes import Node, collect
from tandemq.cli.ha_orders import forget_replica, given, one_of_each_group
from tandemq.cli.render import (
    DEFAULT_NAMESRV,
    Json,
    Namesrv,
    client_config,
    note,
    print_json,
    print_json_line,
    print_outcome,
    run,
    stop_event,
    time_text,
    with_admin,
)
from tandemq.client.admin import Admin
from tandemq.clock import SystemClock
from tandemq.errors import ClientError, RemotingError, ReplyError
from tandemq.replication.metadata import PairCode

app = typer.Typer(help="Replication: who is master, who follows, who is in sync and why not.", no_args_is_help=True)

POLL_SECONDS = 0.2
"""Between two looks of `ha wait`: a script that waits for a second is not held up for another."""
CLEAR_SCREEN = "\033[H\033[2J"

Broker = Annotated[list[str] | None, typer.Option("--broker", "-b", help="Only this broker name.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--ha-key-file",
        envvar="TANDEMQ_HA_KEY_FILE",
        help="File whose first line is the group's haSharedKey, which proves the order; else an admin account must.",
    ),
]
Address = Annotated[list[str] | None, typer.Option("--address", "-a", help="Ask this broker, not those known.")]


@app.callback()
def ha() -> None:
    """Replication: who is master, who follows, who is in sync and why not."""


@app.command()
def status(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Broker = None,
    address: Address = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0.1)] = 1.0,
    as_json: Json = False,
) -> None:
    """Show what every broker says about its replication.

    Exit codes: 0 healthy, 3 a member is absent or not in sync, 4 no writer, 1 an error, 2 wrong usage.
    """
    if watch:
        raise typer.Exit(run(_watch(namesrv, broker, address, interval, as_json)))
    found = with_admin(namesrv, lambda admin: collect(admin, broker, address))
    if as_json:
        print_json(found)
        code = _code(found, address)
    else:
        code = _show(found, broker, address)
    raise typer.Exit(code)


def _code(found: list[Node], address: list[str] | None) -> int:
    return ha_view.worst(ha_view.judge(found, asked_by_address=bool(address)))


def _show(found: list[Node], broker: list[str] | None, address: list[str] | None) -> int:
    groups = ha_view.judge(found, asked_by_address=bool(address))
    width = shutil.get_terminal_size().columns
    if not groups:
        note(
            f"{', '.join(broker)}: not registered with these name servers"
            if broker
            else "no brokers; start one with `tandemq up`"
        )
    for line in ha_view.lines_of(groups, width):
        print(line)
    sys.stdout.flush()
    for line in ha_view.advice(found):
        note(
            textwrap.fill(line, max(width, 40), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        )
    return ha_view.worst(groups)


async def _watch(
    namesrv: str, broker: list[str] | None, address: list[str] | None, interval: float, as_json: bool
) -> int:
    """Shows the state until Ctrl-C; returns the code of what was seen last."""
    stop, clock, code = stop_event(), SystemClock(), ha_view.ERROR
    async with Admin(config=client_config(namesrv)) as admin:
        while not stop.is_set():
            now_ms = clock.wall_ms()
            try:
                found = await collect(admin, broker, address)
            except (RemotingError, ReplyError) as error:
                code = ha_view.ERROR
                if as_json:
                    print_json_line({"atMs": now_ms, "code": code, "error": str(error)})
                else:
                    _title(now_ms)
                    note(str(error))
            else:
                if as_json:
                    code = _code(found, address)
                    print_json_line({"atMs": now_ms, "code": code, "nodes": found})
                else:
                    _title(now_ms)
                    code = _show(found, broker, address)
            try:
                async with asyncio.timeout(interval):
                    await stop.wait()
            except TimeoutError:
                pass
    return code


def _title(now_ms: int) -> None:
    print(f"{CLEAR_SCREEN if sys.stdout.isatty() else ''}{time_text(now_ms)}")


@app.command()
def wait(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    broker: Broker = None,
    address: Address = None,
    in_sync: Annotated[
        bool, typer.Option("--in-sync", help="Until every group has a writer, and slaves that are all in sync.")
    ] = False,
    writable: Annotated[bool, typer.Option("--writable", help="Until every group takes messages.")] = False,
    caught_up: Annotated[
        bool,
        typer.Option("--caught-up", help="Until every slave asked has all that its master has, RocketMQ's too."),
    ] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.", min=0)] = 60.0,
    as_json: Json = False,
) -> None:
    """Wait until the cluster is as a script needs it.

    Exit codes: 0 it is, 1 it was not within --timeout, 2 wrong usage.
    """
    if not (in_sync or writable or caught_up):
        raise typer.BadParameter("say what to wait for: --in-sync, --writable, --caught-up")

    def missing_of(found: list[Node]) -> str:
        groups = ha_view.judge(found, asked_by_address=bool(address))
        absent = set(broker or ()) - {group.name for group in groups}
        if absent:
            return f"{', '.join(sorted(absent))}: not registered"
        missing = ha_view.not_yet(groups, in_sync=in_sync, writable=writable)
        return missing or (ha_view.behind(found) if caught_up else "")

    missing = run(_wait(namesrv, broker, address, missing_of, timeout))
    if missing:
        raise ClientError(f"after {timeout:g} s: {missing}; `tandemq ha status` says more")
    if as_json:
        print_json({"inSync": in_sync, "writable": writable, "caughtUp": caught_up})


@app.command()
def switch(
    address: Annotated[str, typer.Argument(help="host:port of the broker that shall reign.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without in-sync replicas that can't be heard.")
    ] = False,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Make a broker the master of its group; the old one hands over and follows, a hung one within its lease.

    The same as `tandemq broker promote`. With a coordinator no preferred master takes the reign back afterwards.
    """
    ext = {"acceptLoss": "true" if accept_loss else "false"}
    print_outcome(run(given(address, PairCode.PROMOTE, ext, key_file)), as_json=as_json, address=address)


@app.command()
def pause(
    namesrv: Namesrv = DEFAULT_NAMESRV, broker: Broker = None, key_file: KeyFile = None, as_json: Json = False
) -> None:
    """Elect nobody until `tandemq ha resume`: for maintenance of groups with a coordinator."""
    _pause(namesrv, broker, key_file, as_json, paused=True)


@app.command()
def resume(
    namesrv: Namesrv = DEFAULT_NAMESRV, broker: Broker = None, key_file: KeyFile = None, as_json: Json = False
) -> None:
    """Let groups with a coordinator elect a master by themselves again."""
    _pause(namesrv, broker, key_file, as_json, paused=False)


@app.command()
def home(
    address: Annotated[str, typer.Argument(help="host:port of the broker whose register is the newest.")],
    to: Annotated[
        str, typer.Option("--to", help="coordinator or group: where the register shall live.")
    ] = "coordinator",
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without members that can't be asked what they know.")
    ] = False,
    key_file: KeyFile = None,
    as_json: Json = False,
) -> None:
    """Move the register of a group into the broker's coordinator, or back into the group.

    For a manual group that shall elect its master by itself, for an etcd that was lost, and for the way back.
    """
    if to not in ("coordinator", "group"):
        raise typer.BadParameter("must be coordinator or group", param_hint="--to")
    ext = {"to": to, "acceptLoss": "true" if accept_loss else "false"}
    print_outcome(run(given(address, PairCode.MOVE_REGISTER, ext, key_file)), as_json=as_json, address=address)


@app.command()
def revoke(
    path: Annotated[Path, typer.Option("--config", "-c", help="The broker.conf of the broker that has ended.")],
    as_json: Json = False,
) -> None:
    """Revoke the lease of a broker that has ended, so that nobody waits for it; for supervisors (ExecStopPost=).

    Refused while a process has its store open. Without a coordinator there is nothing to do.
    """
    from tandemq.broker.config import BrokerConfig
    from tandemq.cli.config_file import load
    from tandemq.cli.ha_revoke import revoke as revoke_lease
    from tandemq.remoting.config import RemotingConfig
    from tandemq.replication.config import ReplicationConfig
    from tandemq.store.config import StoreConfig

    loaded = load(path, (BrokerConfig, StoreConfig, RemotingConfig, ReplicationConfig), overrides=[], lenient=True)
    print_outcome(run(revoke_lease(loaded)), as_json=as_json, config=str(path))


def _pause(namesrv: str, broker: list[str] | None, key_file: Path | None, as_json: bool, *, paused: bool) -> None:
    ext = {"paused": "true" if paused else "false"}
    for address in with_admin(namesrv, lambda admin: one_of_each_group(admin, broker)):
        print_outcome(run(given(address, PairCode.PAUSE, ext, key_file)), as_json=as_json, address=address)


@app.command()
def forget(
    replica: Annotated[str, typer.Argument(help="Its identity, or an address that names exactly one replica.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    address: Annotated[str, typer.Option("--address", "-a", help="host:port of the master of its group.")] = "",
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also if it may be the only one to hold acknowledged messages.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take a replica that never comes back out of its group.

    Until then it counts for `majority` and `all`, and a promotion that can't hear it is refused.
    """
    ext = {"replica": replica, "acceptLoss": "true" if accept_loss else "false"}
    outcome = with_admin(namesrv, lambda admin: forget_replica(admin, replica, address, ext))
    print_outcome(outcome, as_json=as_json, replica=replica)


async def _wait(
    namesrv: str,
    broker: list[str] | None,
    address: list[str] | None,
    missing_of: Callable[[list[Node]], str],
    timeout: float,
) -> str:
    """Returns what was still missing when the time was over; empty if nothing is."""
    clock = SystemClock()
    deadline = clock.monotonic() + timeout
    while True:
        try:
            async with Admin(config=client_config(namesrv)) as admin:
                missing = missing_of(await collect(admin, broker, address))
        except (RemotingError, ReplyError) as error:
            missing = str(error)
        left = deadline - clock.monotonic()
        if not missing or left <= 0:
            return missing
        await asyncio.sleep(min(POLL_SECONDS, left))
