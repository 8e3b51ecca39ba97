"""`tandemq store`: look at a store on disk without a broker, mend it, back it up. Sizes are found from the files."""

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tandemq.cli import store_backup
from tandemq.cli.render import note, print_json, time_text
from tandemq.cli.store_online import rebuild_by_broker
from tandemq.cli.store_progress import MebibyteBar
from tandemq.errors import StoreError
from tandemq.formats import layout
from tandemq.formats.record import MAGIC_V1, MAGIC_V2, SIZE_MAGIC, parse_record, walk
from tandemq.model.message import StoredMessage
from tandemq.store.config import StoreConfig
from tandemq.store.describe import describe
from tandemq.store.discover import discover_config
from tandemq.store.disk import FileDisk
from tandemq.store.log_walk import whole_records
from tandemq.store.message_store import MessageStore
from tandemq.store.rebuild import rebuild as rebuild_store
from tandemq.store.repair import Repaired, repair
from tandemq.store.verify import Report
from tandemq.store.verify import verify as verify_store

app = typer.Typer(help="Look at a store on disk: verify, dump, rebuild, backup, restore.", no_args_is_help=True)
app.command()(store_backup.backup)
app.command()(store_backup.restore)

Directory = Annotated[
    Path,
    typer.Argument(help="The store's root, which holds commitlog/ (storePathRootDir).", metavar="DIR"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
MEBIBYTE = 1 << 20


@app.command()
def verify(
    place: Annotated[
        str,
        typer.Argument(
            help="The store's root, which holds commitlog/ (storePathRootDir), or a backup.",
            metavar="DIR",
            show_default=False,
        ),
    ],
    mend: Annotated[
        bool,
        typer.Option("--repair", help="Build anew what can be derived from the log: queues, index, checkpoint."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check every record, and queues and index against the log; without --repair nothing changes.

    DIR may be a backup, a directory or s3://bucket/path: every file that a restore would read is checked.
    Exit 0: all is well, or was made well; 1: it is not.
    """
    if store_backup.is_backup(place):
        store_backup.verify(place, mend=mend, as_json=as_json)
        return
    directory = Path(place)
    disk, config = _found(directory)
    repaired = None
    with MebibyteBar("verifying") as step:
        if mend:
            repaired = repair(disk, directory, config, step)
        report = repaired.after if repaired is not None else verify_store(disk, directory, config, step)
    if as_json:
        done = {"repaired": repaired.done, "refused": repaired.refused} if repaired is not None else {}
        print_json({**dataclasses.asdict(report), "ok": report.ok, **done})
    else:
        _print_report(directory, report)
        if repaired is not None:
            _print_repair(repaired)
    if not report.ok:
        raise typer.Exit(1)


def _print_repair(repaired: Repaired) -> None:
    for line in repaired.done:
        note(f"mended   {line}")
    if repaired.refused:
        note(f"not mended: {repaired.refused}")
    elif not repaired.done:
        note("there was nothing to mend")


def _print_report(directory: Path, report: Report) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(show_header=False, box=None, pad_edge=False)
    size = report.end_offset - report.first_offset
    table.add_row(
        "log", f"{report.segments} files, offsets {report.first_offset} to {report.end_offset} ({size:,} bytes)"
    )
    table.add_row("records", f"{report.records:,}")
    table.add_row("queues", f"{report.queues:,} with {report.queue_entries:,} entries")
    table.add_row("index", f"{report.index_files} files with {report.index_entries:,} entries")
    console.print(table)
    for text in report.notes:
        console.print(f"[yellow]note[/]     {escape(text)}")
    for problem in report.problems:
        console.print(f"[red]problem[/]  {escape(problem.where)}: {escape(problem.what)}")
    more = report.problem_count - len(report.problems)
    if more:
        console.print(f"[red]problem[/]  and {more} more")
    if report.ok:
        console.print(f"[green]ok[/]       {escape(str(directory))} is whole")
    else:
        console.print(
            "Queues and index can be built anew with `tandemq store rebuild`, or `verify --repair`; "
            "a damaged log needs its files back from a replica or a backup."
        )


@app.command()
def dump(
    directory: Directory,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Only this queue id.")] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--from", min=0, help="Start here: a queue offset with --topic and --queue, else a physical offset."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-l", min=0, help="At most so many messages.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Print messages, in log order, or in queue order with --topic and --queue. Exit 1: a part of the log is broken."""
    disk, config = _found(directory)
    store = MessageStore.open(directory, config, disk=disk, read_only=True)
    problems = _log_problems(directory, store)
    for problem in problems:
        note(problem)
    skipped: list[str] = []
    try:
        if topic is not None and queue is not None:
            messages = _of_queue(store, topic, queue, start)
        else:
            messages = _of_log(store, topic, queue, start, skipped)
        for number, message in enumerate(messages):
            if limit is not None and number >= limit:
                break
            print(json.dumps(describe(message), ensure_ascii=False) if as_json else _line(message))
    except BrokenPipeError:
        # The reader of our output left (`| head`): no reason to complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        store.close()
    for problem in skipped:
        note(problem)
    if problems or skipped:
        raise typer.Exit(1)


def _log_problems(directory: Path, store: MessageStore) -> list[str]:
    """Returns why a dump can't be complete; nobody should have to guess from where it ends."""
    chain, found = store.log.chain, store.recovered
    problems = [f"{directory / where}: {what}; what is there is shown" for where, what in chain.problems]
    if found is not None and found.behind:
        path = chain.path(chain.base_of(found.end))
        problems.append(
            f"{path}: no whole record at offset {found.end}, but there are some after it, up to {found.behind}. "
            f"`tandemq store verify {directory}` lists every damage; bring the file back from a replica or a backup "
            "before a broker opens the store, which would end its log there and keep the rest under "
            f"{directory / layout.CUT}"
        )
    return problems


def _of_queue(store: MessageStore, topic: str, queue_id: int, start: int | None) -> Iterator[StoredMessage]:
    lowest, highest = store.reader.queue_range(topic, queue_id)
    position = max(lowest, start or 0)
    while position < highest:
        result = store.reader.get(topic, queue_id, position, 32, MEBIBYTE)
        for piece in result.slices:
            if SIZE_MAGIC.unpack_from(piece)[1] not in (MAGIC_V1, MAGIC_V2):
                continue  # in a hole of the log
            for at, _, _ in walk(piece, 0, len(piece)):
                yield parse_record(piece, at)
        position = max(result.next_offset, position + 1)


def _of_log(
    store: MessageStore, topic: str | None, queue_id: int | None, start: int | None, skipped: list[str]
) -> Iterator[StoredMessage]:
    """Yields messages in log order; what can't be read is stepped over, and told in `skipped`."""
    chain, start = store.log.chain, max(start or 0, store.first_offset)
    for base in chain.bases:
        if base + chain.segment_size <= start:
            continue
        view = chain.segment(base).view
        for at, damage in whole_records(view, base):
            if base + at >= store.appended:
                return
            if damage is not None:
                stop = damage.after if damage.after is not None else len(view)
                if any(view[at:stop]):
                    place = f"{chain.path(base)} at offset {base + at}"
                    skipped.append(f"{place}: {damage.problem}: {stop - at} bytes are skipped")
            elif base + at >= start:
                message = parse_record(view, at)
                if topic in (None, message.topic) and queue_id in (None, message.queue_id):
                    yield message


def _line(message: StoredMessage) -> str:
    found = describe(message)
    properties = " ".join(f"{name}={value}" for name, value in found["properties"].items())
    return (
        f"{message.physical_offset:>12}  {message.topic}-{message.queue_id}@{message.queue_offset}  "
        f"{time_text(message.store_timestamp)}  {found['bodyLength']} bytes  {found['msgId']}  {properties}"
    )


@app.command()
def rebuild(
    directory: Annotated[
        Path | None,
        typer.Argument(help="The store's root, which holds commitlog/ (storePathRootDir).", metavar="DIR"),
    ] = None,
    online: Annotated[
        str | None,
        typer.Option("--online", metavar="ADDRESS", help="Instead: host:port of a running broker, which goes on."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build consume queues and index anew from the log: of a store that no broker has open, or --online by a broker.

    Exit 1: the log is damaged, and messages after the damage are in no queue.
    """
    if (directory is None) == (online is None):
        raise typer.BadParameter("give the directory of a store, or --online and the address of its broker")
    if online is not None:
        rebuild_by_broker(online, as_json)
        return
    assert directory is not None
    disk, config = _found(directory)
    with MebibyteBar("rebuilding") as step:
        rebuilt = rebuild_store(disk, directory, config, progress=step)
    status = rebuilt.status
    if as_json:
        print_json(
            {
                "queues": status.queues,
                "indexFiles": status.index_files,
                "endOffset": status.appended,
                "unknownTopics": rebuilt.unknown_topics,
                "damages": rebuilt.damages,
                "cutBytes": rebuilt.cut_bytes,
            }
        )
        if rebuilt.damages:
            raise typer.Exit(1)
        return
    note(
        f"{directory}: {status.queues} queues and {status.index_files} index files built from the log up to "
        f"offset {status.appended}"
    )
    if rebuilt.unknown_topics:
        names = ", ".join(rebuilt.unknown_topics[:10]) + (", …" if len(rebuilt.unknown_topics) > 10 else "")
        note(
            f"the log has messages of {len(rebuilt.unknown_topics)} topics that config/topics.json does not name: "
            f"{names}. If they were deleted, `mqadmin cleanUnusedTopic` drops their queues once the broker runs"
        )
    if rebuilt.damages:
        for damage in rebuilt.damages:
            note(f"{damage}: messages from there to the end of its file may be in no queue")
        if rebuilt.cut_bytes:
            note(f"{rebuilt.cut_bytes} bytes were cut off the log and are kept under {directory / layout.CUT}")
        note("bring the damaged files back from a replica or a backup, and rebuild again")
        raise typer.Exit(1)


def _found(directory: Path) -> tuple[FileDisk, StoreConfig]:
    """Returns the store's files and sizes; raises a clear error if there is no store."""
    disk = FileDisk()
    if not any(layout.is_segment_name(name) for name in disk.list(directory / layout.COMMIT_LOG)):
        raise StoreError(
            f"{directory} holds no store: {directory / layout.COMMIT_LOG} has no log files. "
            "Give the directory that storePathRootDir names"
        )
    return disk, discover_config(disk, directory)
