"""`tandemq spark`: archive, replay, audit, reindex, stats. Also a script for spark-submit: same commands, same options.

tandemq spark archive --store /data/broker-a/store --to /lake
spark-submit --master spark://host:7077 .../tandemq/cli/spark.py audit /data/a/store,/data/b/store
"""

import contextlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tandemq.errors import ConfigError, TandemError

app = typer.Typer(help="Jobs on Spark: archive, replay, audit, reindex, stats.", no_args_is_help=True)

Master = Annotated[
    str, typer.Option("--master", help="Spark master, e.g. spark://host:7077. Under spark-submit: leave it out.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON; progress goes to stderr.")]
Option = Annotated[list[str] | None, typer.Option("--option", "-o", help="Any option of the source, name=value.")]
Store = Annotated[str, typer.Option("--store", help="Store directories, comma-separated; globs allowed.")]
Namesrv = Annotated[str, typer.Option("--namesrv", "-n", help="Name servers: read from the live cluster.")]
Topics = Annotated[str, typer.Option("--topics", "-t", help="Topics, comma-separated. Default: all but system topics.")]

DEFAULT_MASTER = "local[*]"
_err = Console(stderr=True)


def _out() -> Console:
    """Returns a console as wide as the terminal; in a file or a pipe no table is cut."""
    return Console(width=None if sys.stdout.isatty() else 10_000, highlight=False, soft_wrap=not sys.stdout.isatty())


def _say(text: str) -> None:
    _err.print(f"[dim]{text}[/dim]", highlight=False)


@contextmanager
def _bar(session: Any) -> Iterator[None]:
    """Shows how many tasks are done while a job runs, on a terminal."""
    from tandemq.spark.runtime.task_progress import TaskCount, watched_tasks

    if not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_err, transient=True) as bar:
        shown = bar.add_task("tasks", total=None, visible=False)

        def show(count: TaskCount | None) -> None:
            if count is None:
                bar.update(shown, visible=False)
            else:
                bar.update(shown, completed=count.done, total=count.total, visible=True)

        with watched_tasks(session, show):
            yield


@contextmanager
def _session(name: str, master: str) -> Iterator[Any]:
    """Returns a session of our own, or the one that spark-submit prepares; quiet, its errors as one sentence."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from tandemq.spark.runtime.failures import cause_of
        from tandemq.spark.runtime.stderr_filter import filtered_stderr
        from tandemq.spark.session import session_builder
        from tandemq.spark.source.data_sources import register
    except ImportError as error:
        raise ConfigError(f"Spark is not installed ({error}): pip install 'tandemq[spark]'") from None
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    builder = session_builder(f"tandemq {name}", master="" if submitted else master)
    if not submitted:
        # A failure is told in one sentence at the end; Spark would log it three times, with traces of three languages.
        builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        _say(f"starting Spark ({master})")
        with filtered_stderr():
            session = builder.getOrCreate()
    else:
        session = builder.getOrCreate()
        register(session)  # code that came with --py-files is not discovered
    try:
        with _bar(session):
            yield session
    except (PySparkException, Py4JError) as error:
        raise TandemError(cause_of(str(error))) from None
    finally:
        with contextlib.suppress(Exception):  # the JVM may be gone: that is what is told then
            session.stop()


def _source(store: str, namesrv: str, topics: str, option: list[str] | None) -> tuple[str, dict[str, str]]:
    """Returns format and options from the common flags."""
    if bool(store) == bool(namesrv):
        raise ConfigError("give either --store (directories) or --namesrv (a live cluster)")
    options: dict[str, str] = {}
    for pair in option or ():
        name, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(f"--option {pair!r}: name=value expected")
        options[name] = value
    if topics:
        options["subscribe"] = topics
    if store:
        _check_stores(store)
        return "rocketmq-commitlog", {"path": store, **options}
    if not topics and "subscribePattern" not in options and "assign" not in options:
        options["subscribePattern"] = (
            "(?!RMQ_SYS_|rmq_sys_|SCHEDULE_TOPIC_XXXX|TBW102|SELF_TEST_TOPIC|TANDEMQ_SPARK_).*"
        )
    return "rocketmq", {"nameserver": namesrv, **options}


def _check_stores(paths: str) -> None:
    """Refuses a path that is no store at once, instead of by a stack trace after Spark has started."""
    try:
        from tandemq.spark.source.store_files import find_stores
    except ImportError:
        return  # the session says what is missing
    find_stores(paths)


def _finish(result: dict[str, Any], as_json: bool, sentence: str) -> None:
    if as_json:
        print(json.dumps(result))
    else:
        _out().print(sentence)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


@app.command()
def archive(
    to: Annotated[str, typer.Option("--to", help="Directory of the lake (a Delta table is made there).")],
    store: Store = "",
    namesrv: Namesrv = "",
    topics: Topics = "",
    checkpoint: Annotated[str, typer.Option(help="Where progress is kept. Default: TO/_tandemq/checkpoint.")] = "",
    columns: Annotated[
        str, typer.Option(help="Columns to keep, comma-separated. Default: all but raw properties.")
    ] = "",
    follow: Annotated[float, typer.Option(help="Go on, a batch every so many seconds; 0: end when caught up.")] = 0.0,
    vacuum: Annotated[int, typer.Option(help="Then remove unlisted files older than so many hours; -1: no.")] = -1,
    option: Option = None,
    master: Master = DEFAULT_MASTER,
    as_json: Json = False,
) -> None:
    """Topics or a whole replica to partitioned Parquet with a Delta log; exactly once, run it again to go on."""
    from tandemq.spark.columns import DEFAULT_COLUMNS
    from tandemq.spark.jobs.archive import ArchivePlan
    from tandemq.spark.jobs.archive import archive as run
    from tandemq.spark.lake.table import Lake

    source, options = _source(store, namesrv, topics, option)
    kept = tuple(columns.split(",")) if columns else DEFAULT_COLUMNS
    plan = ArchivePlan(to, checkpoint or f"{to}/_tandemq/checkpoint", source, options, kept, follow)
    with _session("archive", master) as spark:
        result = run(spark, plan, say=_say)
    document = result.to_json()
    if vacuum >= 0:
        document["vacuumed"] = len(Lake(to).vacuum(vacuum))
    status = Lake(to).status()
    document |= {"tableVersion": status.version, "tableRows": status.rows, "tableFiles": status.files}
    rate = result.messages / result.seconds if result.seconds else 0
    _finish(
        document, as_json,
        f"archived {result.messages:,} messages in {result.files} files, {_size(result.size)}, "
        f"{result.seconds:.1f} s ({rate:,.0f}/s); the lake has {status.rows:,} messages, version {status.version}",
    )  # fmt: skip


@app.command()
def replay(
    to: Annotated[str, typer.Option("--to", help="Name servers of the cluster to replay into.")],
    state: Annotated[str, typer.Option(help="Directory that remembers what this replay is; run again to complete it.")],
    name: Annotated[str, typer.Option(help="Name of the replay; part of its messages' keys.")],
    lake: Annotated[str, typer.Option(help="A lake that `archive` wrote.")] = "",
    store: Store = "",
    topics: Topics = "",
    to_topic: Annotated[str, typer.Option(help="Topic to write to. Default: each message's own.")] = "",
    start: Annotated[int, typer.Option(help="Only messages stored at or after (ms since 1970).")] = -1,
    stop: Annotated[int, typer.Option(help="Only messages stored before (ms since 1970).")] = -1,
    where: Annotated[str, typer.Option(help="SQL filter, e.g. \"tags = 'paid'\".")] = "",
    rate: Annotated[int, typer.Option(min=0, help="Messages per second at most; 0: as fast as it goes.")] = 0,
    delivery: Annotated[str, typer.Option(help="exactly_once or at_least_once.")] = "exactly_once",
    keep_queues: Annotated[bool, typer.Option("--keep-queues", help="Keep each message's queue number.")] = False,
    master: Master = DEFAULT_MASTER,
    as_json: Json = False,
) -> None:
    """A lake or a log, a time range of it, back into a topic; exactly once, also when run again."""
    from tandemq.spark.jobs.replay import ReplayPlan
    from tandemq.spark.jobs.replay import replay as run

    if store:
        _check_stores(store)
    sink = {"nameserver": to, "delivery": delivery} | ({"topic": to_topic} if to_topic else {})
    wanted = tuple(topic.strip() for topic in topics.split(",") if topic.strip())
    plan = ReplayPlan(name, state, sink, lake, store, wanted, start, stop, where, rate, keep_queues)
    with _session("replay", master) as spark:
        result = run(spark, plan, say=_say)
    again = ", those stored by an earlier run were not repeated" if result.resumed else ""
    _finish(result.to_json(), as_json, f"replayed {result.messages:,} messages in {result.seconds:.1f} s{again}")


@app.command()
def audit(
    paths: Annotated[str, typer.Argument(help="Stores of the replicas, comma-separated; globs allowed.")],
    list_max: Annotated[int, typer.Option("--list", min=0, help="Differing messages to list.")] = 20,
    master: Master = DEFAULT_MASTER,
    as_json: Json = False,
) -> None:
    """Replicas of a group against each other; exit code 1 if they differ up to the confirmed offset."""
    from tandemq.spark.jobs.audit import audit as run

    _check_stores(paths)
    with _session("audit", master) as spark:
        result = run(spark, paths, listed_max=list_max, say=_say)
    for text in result.notes:
        _say(text)
    if not as_json and result.differences:
        table = Table("KIND", "REPLICA", "OFFSET", "TOPIC", "QUEUE", "MESSAGE", "DETAIL")
        for row in result.differences:
            place = f"{row['queue_id']}/{row['queue_offset']}"
            table.add_row(
                row["kind"], row["replica"], str(row["physical_offset"]), row["topic"] or "?", place,
                row["msg_id"] or "?", row["detail"],
            )  # fmt: skip
        _out().print(table)
    compared = f"{_size(result.stop - result.start)} from {result.start} to {result.stop}"
    if result.equal:
        sentence = f"equal: {len(result.replicas)} replicas, {compared}, {result.queues} queues, {result.seconds:.1f} s"
    else:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(result.by_kind.items()))
        sentence = f"DIFFERENT: {result.count} places ({kinds}) in {len(result.ranges)} ranges; compared {compared}"
    _finish(result.to_json(), as_json, sentence)
    raise typer.Exit(0 if result.equal else 1)


@app.command()
def reindex(
    path: Annotated[str, typer.Argument(help="The store; its broker must be stopped.")],
    check: Annotated[
        bool, typer.Option("--check", help="Only compare with what the log gives; exit 1 if different.")
    ] = False,
    queue_file_size: Annotated[int, typer.Option(help="mappedFileSizeConsumeQueue; 0: as the files there.")] = 0,
    index_slots: Annotated[int, typer.Option(help="maxHashSlotNum; 0: RocketMQ's default.")] = 0,
    index_entries: Annotated[int, typer.Option(help="maxIndexNum; 0: RocketMQ's default.")] = 0,
    master: Master = DEFAULT_MASTER,
    as_json: Json = False,
) -> None:
    """Rebuild the consume queues and the key index of a store from its log, in parallel."""
    from tandemq.spark.jobs.reindex import reindex as run

    _check_stores(path)
    with _session("reindex", master) as spark:
        result = run(
            spark, path, check=check, queue_file_size=queue_file_size, index_slots=index_slots,
            index_entries=index_entries, say=_say,
        )  # fmt: skip
    what = "checked" if check else "rebuilt"
    sentence = (
        f"{what} {result.entries:,} entries of {result.queues} queues and {result.keys:,} keys in "
        f"{result.index_files} index files, {result.seconds:.1f} s"
    )
    if check:
        listed = ", ".join(result.different[:10])
        sentence += f"; DIFFERENT: {listed}" if listed else "; all as the log says"
    _finish(result.to_json(), as_json, sentence)
    raise typer.Exit(1 if result.different else 0)


@app.command()
def stats(
    store: Store = "",
    namesrv: Namesrv = "",
    topics: Topics = "",
    window: Annotated[str, typer.Option(help="Length of a window: 10s, 1m, 1h.")] = "1m",
    out: Annotated[str, typer.Option(help="Write a page with plots here (HTML, opens without a network).")] = "",
    option: Option = None,
    master: Master = DEFAULT_MASTER,
    as_json: Json = False,
) -> None:
    """Rates, sizes, tags, producers, latency and lag over windows: a table, a page, JSON."""
    from tandemq.spark.jobs.stats import stats as run
    from tandemq.spark.jobs.stats import write_report

    source, options = _source(store, namesrv, topics, option)
    with _session("stats", master) as spark:
        result = run(spark, source, options, window=window, say=_say)
    if out:
        write_report(result, out)
        _say(f"wrote {Path(out).resolve()}")
    if as_json:
        print(json.dumps(result.to_json()))
        return
    table = Table("TOPIC", "MESSAGES", "MSG/S", "SIZE", "BODY P50", "BODY P99", "LATENCY P50", "P99")
    for row in result.topics:
        table.add_row(
            row["topic"], f"{row['messages']:,}", f"{row['rate']:,.1f}", _size(row["bytes"]), str(row["body_p50"]),
            str(row["body_p99"]), f"{row['latency_p50_ms']} ms", f"{row['latency_p99_ms']} ms",
        )  # fmt: skip
    _out().print(table)
    if result.groups:
        lags = Table("GROUP", "TOPIC", "LAG")
        for row in result.groups[:30]:
            lags.add_row(row["group"], row["topic"], f"{row['lag']:,}")
        _out().print(lags)


if __name__ == "__main__":
    try:
        app()
    except TandemError as problem:
        print(f"tandemq: {problem}", file=sys.stderr)
        sys.exit(1)
