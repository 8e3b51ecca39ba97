"""A replica beside production: what it costs those who are there already, and how well it uses the link to it.

./run bench replica
"""

import asyncio
import shutil

from tests.peers.tools import Missing

from bench import beside, thin_link
from bench.frame import Benchmark, Figure, Run, Unavailable

SIZE = 1 << 30
CUTS = 10


def over_thin_link(run: Run, compression: str) -> dict[str, float]:
    directory = run.directory / f"thin-{compression or 'plain'}-{run.round}"
    try:
        found = asyncio.run(
            thin_link.copy_over(directory, run.count(SIZE, 64 << 20), cuts=CUTS, compression=compression)
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "use": found.use_of_link,
        "goodput": found.size / found.seconds / 1e6,
        "ratio": found.ratio,
        "size": found.size / 1e6,
        "differences": found.differences,
        "refused": found.refused,
        "p99": thin_link.p99(found.beside_ms),
        "p99 alone": thin_link.p99(found.alone_ms),
    }


FIGURES = {
    "use": Figure(
        "", goal=0.9, what="goodput as a share of the link's 2.5 MB/s times the ratio, while there is a link"
    ),
    "goodput": Figure("MB/s", what="of the log"),
    "ratio": Figure("", what="how much smaller the log was on the link; what was sent twice after a cut counts"),
    "size": Figure("MB", what="of the log that was copied"),
    "differences": Figure("MiB", "less", 0, what="pieces of the log that differ at the end"),
    "refused": Figure("messages", "less", 0, what="sends to the master that were not answered with SEND_OK"),
    "p99": Figure("ms", "less", what="of 50 sends/s to the SYNC_MASTER meanwhile"),
    "p99 alone": Figure("ms", "less", what="likewise at the same time, to a pair that nobody observes"),
}

FAULTS = 10


def beside_production(run: Run, version: str) -> dict[str, float]:
    directory = run.directory / f"beside-{version}-{run.round}"
    try:
        found = asyncio.run(beside.story(directory, version, faults=run.count(FAULTS), spark=True))
    except Missing as reason:
        raise Unavailable(str(reason)) from reason
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "acknowledged": found.acknowledged,
        "missing": found.missing,
        "differences": found.differences,
        "not SEND_OK": found.not_ok(found.beside),
        "not SEND_OK alone": found.not_ok(found.alone),
        "p99": found.beside["p99_us"] / 1000,
        "p99 alone": found.alone["p99_us"] / 1000,
        "p50": found.beside["p50_us"] / 1000,
        "p50 alone": found.alone["p50_us"] / 1000,
        "kills": found.kills,
        "cuts": found.cuts,
        "Spark: unread": max(0, found.stored - found.read["different"]),
        "Spark: twice": found.read["rows"] - found.read["different"],
        "Spark: failures": found.read["failures"],
    }


def beside_benchmark(version: str) -> Benchmark:
    return Benchmark(
        what=f"Observers of a real {version} SYNC_MASTER and of its slave, attached under load of the Java client, "
        "killed and cut off ten times each, with Spark on one of them; the same load goes to a pair without them.",
        figures=BESIDE_FIGURES,
        sides={"ours": lambda run: beside_production(run, version)},
        rounds=1,
    )


BESIDE_FIGURES = {
    "acknowledged": Figure("messages", what="with SEND_OK, before and after the observers came"),
    "missing": Figure("messages", "less", 0, what="of these, at an observer"),
    "differences": Figure("MiB", "less", 0, what="pieces of an observer's log that differ from its source's"),
    "not SEND_OK": Figure("messages", "less", what="other answers while the observers were there"),
    "not SEND_OK alone": Figure("messages", "less", what="likewise, of the pair without them"),
    "p99": Figure("ms", "less", what="of the Java client's sends, 200 a second"),
    "p99 alone": Figure("ms", "less", what="likewise, of the pair without them at the same time"),
    "p50": Figure("ms", "less"),
    "p50 alone": Figure("ms", "less"),
    "kills": Figure("", what="of observers"),
    "cuts": Figure("", what="of their links"),
    "Spark: unread": Figure("messages", "less", 0, what="in the log, and not in what the query wrote"),
    "Spark: twice": Figure("messages", "less", 0, what="more than once in what the query wrote"),
    "Spark: failures": Figure("", "less", what="runs that ended with an error, and were begun again"),
}

BENCHMARKS: dict[str, Benchmark] = {
    "thin-link": Benchmark(
        what="An observer that is 1 GiB behind catches up over 100 ms and 20 Mbit/s, cut ten times.",
        figures=FIGURES,
        sides={"ours": lambda run: over_thin_link(run, "")},
        rounds=1,
    ),
    "thin-link-zstd": Benchmark(
        what="Likewise, with haCompression=zstd.",
        figures=FIGURES,
        sides={"ours": lambda run: over_thin_link(run, "zstd")},
        rounds=1,
    ),
    **{f"beside-{version}": beside_benchmark(version) for version in ("4.9.7", "5.5.0")},
}
