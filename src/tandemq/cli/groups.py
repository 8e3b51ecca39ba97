"""`tandemq broker --groups N`: one supervisor that starts, watches, restarts and stops the processes of a plan.

Each group is a `tandemq broker` of its own. Their output comes through the supervisor, with the name of the group in
front of each line. A group that ends is started again after a pause that grows; the others go on. SIGTERM and Ctrl-C
stop them one after the other, in order. If the supervisor is killed, the kernel tells its groups to stop.
"""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tandemq.broker.config import BrokerConfig
from tandemq.cli.group_plan import BackOff, Group, check_layout, merged_metrics, plan_groups
from tandemq.clock import SystemClock
from tandemq.errors import ConfigError, TandemError
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.metrics_http import MetricsEndpoint
from tandemq.remoting.metrics_text import Family, rendered
from tandemq.replication.config import ReplicationConfig

log = logging.getLogger("tandemq.groups")

READY = b"boot success"
"""A broker prints it when it serves."""
READY_SECONDS = 300.0
"""A store of terabytes after a crash takes a while; a broker that says nothing for longer will not come."""
STOP_SECONDS = 60.0
LINE_MAX = 64 * 1024
SCRAPE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1


class SupervisorError(TandemError):
    """A group could not be started at all."""


class Supervisor:
    """The processes of one plan."""

    def __init__(self, groups: list[Group], command: Callable[[Group], list[str]]) -> None:
        self.groups = groups
        self._command = command
        self._clock = SystemClock()
        self._stopping = asyncio.Event()
        self._ready = {group.name: asyncio.Event() for group in groups}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._back_offs = {group.name: BackOff() for group in groups}
        self._last_lines: dict[str, list[str]] = {group.name: [] for group in groups}

    def stop(self) -> None:
        self._stopping.set()

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serves until `stop`. SupervisorError if a group does not come up the first time: the others stop too."""
        keepers = [asyncio.create_task(self._keep(group)) for group in self.groups]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            first = asyncio.create_task(self._all_ready())
            await asyncio.wait([first, stopping, *keepers], return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                first.result()
                on_ready()
            first.cancel()
            await asyncio.wait([stopping, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for keeper in keepers:
                if keeper.done():
                    keeper.result()
        finally:
            self._stopping.set()
            stopping.cancel()
            await self._stop_in_order()
            await asyncio.gather(*keepers, return_exceptions=True)

    async def _all_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS):
                for ready in self._ready.values():
                    await ready.wait()
        except TimeoutError:
            late = ", ".join(name for name, ready in self._ready.items() if not ready.is_set())
            raise SupervisorError(
                f"{late} did not come up within {READY_SECONDS:g} s; the lines above say why"
            ) from None

    async def _keep(self, group: Group) -> None:
        """Runs one group's process, again and again."""
        back_off = self._back_offs[group.name]
        while not self._stopping.is_set():
            started = self._clock.monotonic()
            code = await self._run_once(group)
            if self._stopping.is_set():
                return
            if not self._ready[group.name].is_set():
                words = "; ".join(self._last_lines[group.name][-2:])
                raise SupervisorError(f"{group.name} ended with code {code} before it served: {words}")
            pause = back_off.after(self._clock.monotonic() - started)
            log.warning("%s ended with code %d; it is started again in %g s", group.name, code, pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def _run_once(self, group: Group) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._command(group),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_MAX,
            start_new_session=True,  # Ctrl-C is for us: we stop them in order
            preexec_fn=_die_with_parent,
        )
        self._processes[group.name] = process
        await self._forward(group, process)
        return await process.wait()

    async def _forward(self, group: Group, process: asyncio.subprocess.Process) -> None:
        """Passes on what a group says, until it ends."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # longer than LINE_MAX: the reader has dropped it
                continue
            if not line:
                return
            text = line.decode("utf-8", "replace").rstrip("\n")
            print(f"[{group.name}] {text}", file=sys.stderr, flush=True)
            self._last_lines[group.name] = [*self._last_lines[group.name][-7:], text]
            if READY in line:
                self._ready[group.name].set()

    async def _stop_in_order(self) -> None:
        for group in self.groups:
            process = self._processes.get(group.name)
            if process is None or process.returncode is not None:
                continue
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                log.error("%s does not stop within %g s and is killed", group.name, STOP_SECONDS)
                with contextlib.suppress(ProcessLookupError):
                    process.kill()

    # --- metrics ------------------------------------------------------------------------------------------------------

    def is_up(self, group: Group) -> bool:
        process = self._processes.get(group.name)
        return process is not None and process.returncode is None and self._ready[group.name].is_set()

    async def scrape(self) -> list[str]:
        """Returns the metrics of all groups and our own, as one text."""
        texts = await asyncio.gather(*(_scraped(group.metrics_port) for group in self.groups))
        found = {group.name: text for group, text in zip(self.groups, texts, strict=True)}
        return [merged_metrics(found), *rendered(self._families())]

    def _families(self) -> Iterator[Family]:
        up = [((group.name,), float(self.is_up(group))) for group in self.groups]
        restarts = [((name,), float(back_off.restarts)) for name, back_off in self._back_offs.items()]
        yield Family("tandemq_group_up", "gauge", "1 while the process of a group runs.", up, ("broker",))
        meaning = "How often the supervisor started a group again."
        yield Family("tandemq_group_restarts_total", "counter", meaning, restarts, ("broker",))


async def _scraped(port: int) -> str:
    """Returns one group's metrics; nothing from a group that does not answer."""
    try:
        async with asyncio.timeout(SCRAPE_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await reader.read()
            writer.close()
    except (OSError, TimeoutError):
        return ""
    head, _, body = answer.partition(b"\r\n\r\n")
    return body.decode("utf-8", "replace") if b" 200 " in head.split(b"\r\n")[0] else ""


def _die_with_parent() -> None:
    """Asks the kernel to stop this process when the supervisor is gone (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


async def serve_groups(
    broker: BrokerConfig, remoting: RemotingConfig, replication: ReplicationConfig, arguments: list[str]
) -> None:
    """Runs `brokerGroups` groups until SIGTERM or Ctrl-C; `arguments` are those of one broker, without the plan's."""
    if broker.store_directories:
        names = ", ".join(sorted(broker.store_directories))
        raise ConfigError(
            f"brokerGroups={broker.broker_groups}: each group has its store in one directory, but {names} lie elsewhere"
        )
    groups = plan_groups(broker, remoting, replication)
    for line in check_layout(broker.store_root, broker.broker_groups, names_in):
        print(f"note: {line}", file=sys.stderr)
    for group in groups:
        print(f"{group.name}  listenPort {group.port}  {group.store}", flush=True)
    supervisor = Supervisor(
        groups, lambda group: [sys.executable, "-m", "tandemq", "broker", *arguments, *group.flags()]
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.stop)
    async with MetricsEndpoint(supervisor.scrape) as endpoint:
        if broker.metrics_port:
            await endpoint.start(broker.metrics_address, broker.metrics_port)
        await supervisor.run(lambda: print(f"{len(groups)} groups boot success.", flush=True))
