"""A replica beside production: what it costs those who are there already, and how well it uses the link to it.

./run bench replica
"""

import asyncio
import shutil

from bench import thin_link
from bench.frame import Benchmark, Figure, Run

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
    "p99 alone": Figure("ms", "less", what="likewise, before the link was there"),
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
}
