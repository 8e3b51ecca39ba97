"""`tandemq up`: a working pair on this machine, from nothing, and what to do next with it."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tandemq.cli.local_cluster import (
    DEFAULT_DIRECTORY,
    ClusterError,
    LocalCluster,
    Node,
    Plan,
    new_console,
    new_failover_plan,
    new_plan,
    port_is_free,
)
from tandemq.client.admin import Admin
from tandemq.client.admin_views import HaView
from tandemq.errors import RemotingError, ReplyError

app = typer.Typer(help="Start two name servers, a master and its slaves on this machine.")

IN_SYNC_SECONDS = 30
WATCH_SECONDS = 1.0
PROGRAM = os.environ.get("TANDEMQ_PROGRAM", "tandemq")
"""What the user typed to get here: the script `./run` says so."""


async def pair_state(master: Node, admin: Admin) -> HaView | None:
    """Returns what the master says of its slaves; None while it doesn't answer."""
    try:
        return await admin.ha_status(master.address)
    except (RemotingError, ReplyError):
        return None


async def until_in_sync(cluster: LocalCluster) -> HaView:
    """Waits until every slave of the plan is in sync with the master, whichever broker that is."""
    wanted = len(cluster.plan.brokers) - 1
    candidates = cluster.plan.brokers if cluster.plan.coordinator else (cluster.plan.master,)
    state = None
    async with Admin(namesrv=cluster.plan.namesrv_address) as admin:
        for _ in range(IN_SYNC_SECONDS * 20):
            for node in candidates:
                found = await pair_state(node, admin)
                state = found if state is None or (found is not None and found.master) else state
                if found is not None and found.master and found.in_sync >= wanted:
                    return found
            await asyncio.sleep(0.05)
    had = "the master does not answer" if state is None else f"{state.in_sync} of {wanted} slaves are in sync"
    raise ClusterError(
        f"{had} after {IN_SYNC_SECONDS} s; `tandemq ha status -n {cluster.plan.namesrv_address}` says why"
    )


def open_cluster(directory: Path, *, slaves: int, sync: bool, failover: bool = False, etcd: str = "") -> LocalCluster:
    """Returns the cluster of an earlier `up` in this directory, or a new one on free ports."""

    def fresh() -> Plan:
        if failover:
            return new_failover_plan(brokers=slaves + 1, sync=sync, coordinator=etcd)
        return new_plan(slaves=slaves, sync=sync)

    found = LocalCluster.load(directory)
    if found is None:
        return LocalCluster(directory, fresh())
    if found.running():
        names = ", ".join(node.name for node in found.running())
        raise ClusterError(f"{names} of {directory} already run; `{PROGRAM} down --dir {directory}` stops them")
    if bool(found.plan.coordinator) != failover:
        how = "with --failover" if found.plan.coordinator else "without --failover"
        raise ClusterError(f"{directory} was started {how}: start it so or choose another --dir")
    had = len(found.plan.brokers) - 1
    if had != slaves or (found.plan.master.role == "SYNC_MASTER") != sync:
        raise ClusterError(
            f"{directory} holds a {found.plan.master.role} with {had} slave(s): start it so or choose another --dir"
        )
    if failover:
        return found  # brokers are members by their addresses, and etcd has its own on disk
    if all(port_is_free(node.port) for node in found.plan.nodes):
        console = found.plan.console
        if console is None or not port_is_free(console.port):
            return LocalCluster(directory, Plan(found.plan.nodes, new_console()))
        return found
    return LocalCluster(directory, fresh())  # the same nodes and data, on other ports


def describe(cluster: LocalCluster, master: str = "") -> Table:
    """Draws the nodes; `master`: where the elected one is, in a cluster that elects it."""
    table = Table("node", "role", "address", "state", "data", box=None, pad_edge=False)
    if cluster.plan.etcd is not None:
        etcd = cluster.plan.etcd
        table.add_row(etcd.name, "coordinator", etcd.address, "up", str(cluster.home(etcd)))
    for node in cluster.plan.nodes:
        if node.kind == "namesrv":
            row = ("name server", "up")
        elif cluster.plan.coordinator and node.address != master:
            row = ("SLAVE", "in sync")
        elif cluster.plan.coordinator or node is cluster.plan.master:
            row = (node.role, "writable")
        else:
            row = (node.role, "in sync")  # `until_in_sync` has waited for it
        table.add_row(node.name, row[0], node.address, row[1], str(cluster.home(node)))
    return table


def console_line(cluster: LocalCluster) -> str:
    return f"console:      {cluster.console_url} (see it, act on it)"


def next_steps(cluster: LocalCluster) -> str:
    slave = cluster.store(cluster.plan.brokers[-1])
    steps = (
        ("send orders 'hello tandem'", "a message, acknowledged by master and slave"),
        ("consume orders --from earliest --follow", "read it back"),
        ("ha status", "who has what"),
        (f"spark stats --store {slave}", "Spark on the replica's files"),
        ("demo", "kill the master, lose nothing"),
    )
    if cluster.plan.coordinator:
        steps = (
            *steps[:-2],
            ("ha switch ADDRESS", "let another broker reign"),
            ("demo --failover", "kill -9, and go on"),
        )
    lines = [f"{PROGRAM} {command:<45} # {what}" for command, what in steps]
    return "\n".join(lines)


async def run_cluster(cluster: LocalCluster, console: Console, *, detach: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await cluster.start_all()
        state = await until_in_sync(cluster)
    except BaseException:
        await cluster.stop_all()
        raise
    console.print(describe(cluster, state.address))
    console.print(f"\nname servers: {cluster.plan.namesrv_address} (commands on this machine find them by themselves)")
    console.print(console_line(cluster), highlight=False)
    console.print("\nTry next:\n", style="bold")
    console.print(next_steps(cluster), highlight=False, markup=False, soft_wrap=True)
    if detach:
        console.print(f"\nRunning in the background; `{PROGRAM} down --dir {cluster.directory}` stops it.")
        return
    console.print("\nCtrl-C stops everything.")
    try:
        await watch(cluster, stop, console)
    finally:
        await cluster.stop_all()
        console.print("stopped")


async def watch(cluster: LocalCluster, stop: asyncio.Event, console: Console) -> None:
    """Prints when a node goes or comes back; the others go on, which is the point of a pair."""
    known = {node.name for node in cluster.running()}
    while not stop.is_set():
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await stop.wait()
        except TimeoutError:
            now = {node.name: node for node in cluster.running()}
            for node in cluster.plan.processes:
                if node.name in known and node.name not in now:
                    console.print(f"{node.name} stopped:\n{cluster.last_words(node, 3)}", style="yellow", markup=False)
                elif node.name in now and node.name not in known:
                    console.print(f"{node.name} is back", style="green")
            known = set(now)


@app.callback(invoke_without_command=True)
def up(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where everything lives; survives restarts.")
    ] = DEFAULT_DIRECTORY,
    slaves: Annotated[int | None, typer.Option(min=1, max=8, help="How many slaves: 1, with --failover 2.")] = None,
    asynchronous: Annotated[bool, typer.Option("--async", help="ASYNC_MASTER: replies before a slave has it.")] = False,
    failover: Annotated[
        bool, typer.Option("--failover", help="Start an etcd too; the brokers elect their master by themselves.")
    ] = False,
    etcd: Annotated[str, typer.Option("--etcd", help="With --failover: an etcd that runs, etcd://host:port.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return when it is up; `tandemq down` stops it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the nodes as JSON (with --detach).")] = False,
) -> None:
    """Start two name servers, a master, its slaves and the console on this machine; print addresses and what to try."""
    if etcd and not failover:
        raise typer.BadParameter("--etcd is for --failover")
    count = slaves or (2 if failover else 1)
    cluster = open_cluster(directory, slaves=count, sync=not asynchronous, failover=failover, etcd=etcd)
    console = Console(quiet=as_json)
    asyncio.run(run_cluster(cluster, console, detach=detach))
    if as_json:
        nodes = {
            node.name: {"kind": node.kind, "role": node.role, "address": node.address} for node in cluster.plan.nodes
        }
        told = {"namesrv": cluster.plan.namesrv_address, "console": cluster.console_url, "nodes": nodes}
        print(json.dumps(told))
