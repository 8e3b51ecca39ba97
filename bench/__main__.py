"""`./run bench`: list the benchmarks; `./run bench NAME… [--rounds N] [--scale X]`: run them; `./run bench report`;
`./run bench soak --minutes N`: a pair that lives through months, against a ledger (soak.py);
`./run bench failover-chaos`: a group of three with a real etcd, under every fault (failover_chaos.py).

NAME is a benchmark (`broker.async`), a module (`broker`) or `all`.
"""

import argparse
import importlib
import json
import pkgutil
import sys

import bench
from bench import frame, report

NOT_BENCHMARKS = {
    "__main__",
    "beside",
    "beside_spark",
    "chaos",
    "client_load",
    "failover_chaos",
    "failover_java",
    "frame",
    "growth_daemon",
    "load",
    "memory",
    "peers",
    "report",
    "site_link",
    "soak",
    "soak_ledger",
    "spark_kills",
    "spark_kills_driver",
    "thin_link",
}


def discover() -> tuple[dict[str, frame.Benchmark], dict[str, str]]:
    """Every benchmark by MODULE.NAME, and the modules that cannot be used here with the reason."""
    found: dict[str, frame.Benchmark] = {}
    unusable: dict[str, str] = {}
    for info in pkgutil.iter_modules(bench.__path__):
        if info.name in NOT_BENCHMARKS:
            continue
        try:
            module = importlib.import_module(f"bench.{info.name}")
        except ImportError as error:
            unusable[info.name] = str(error)
            continue
        for name, benchmark in getattr(module, "BENCHMARKS", {}).items():
            found[f"{info.name}.{name}"] = benchmark
    return found, unusable


def choose(found: dict[str, frame.Benchmark], wanted: list[str]) -> list[str]:
    """The names asked for, in the order of the list; ends the program on an unknown one."""
    if "all" in wanted:
        return list(found)
    chosen = [name for name in found if name in wanted or name.split(".")[0] in wanted]
    for name in wanted:
        if not any(name in (c, c.split(".")[0]) for c in chosen):
            sys.exit(f"bench: no benchmark {name!r}; `./run bench` lists them")
    return chosen


def show(found: dict[str, frame.Benchmark], unusable: dict[str, str]) -> None:
    width = max((len(name) for name in found), default=0)
    for name, benchmark in found.items():
        print(f"{name:<{width}}  {benchmark.what}  [{', '.join(benchmark.sides)}]")
    for name, reason in unusable.items():
        print(f"{name:<{width}}  not usable here: {reason}")
    print("\n./run bench NAME… | MODULE… | all   [--rounds N] [--scale 0.01]        ./run bench report")
    print("./run bench soak [--minutes N] [--seed N]   a pair that lives through months, against a ledger")
    print("./run bench failover-chaos [--etcd 3.4|3.5] [--nodes 1|3]   three brokers and etcd under every fault")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tandemq bench",
        description=__doc__,
        epilog="Examples: `tandemq bench`, `tandemq bench broker.async --rounds 1`, `tandemq bench all --scale 0.01`",
    )
    parser.add_argument("names", nargs="*", help="benchmarks, modules, `all`; or `report` alone")
    parser.add_argument("--rounds", type=int, help="instead of the benchmark's own number")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the work; below 1 nothing is kept")
    parser.add_argument("--minutes", type=float, default=60.0, help="of `soak`; below 10 nothing is kept")
    parser.add_argument("--seed", type=int, default=1, help="of `soak`: what happens in which order")
    parser.add_argument("--dir", default="", help="of `soak`: where its stores lie, and stay")
    parser.add_argument("--etcd", default="3.4", help="of `failover-chaos`: the distribution's 3.4, 3.5, or a path")
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 3), help="of `failover-chaos`: nodes of etcd")
    parser.add_argument("--only", default="", help="of `failover-chaos`: faults whose name has this in it")
    parser.add_argument("--json", action="store_true", help="list them as JSON")
    a = parser.parse_args()
    if a.names == ["soak"]:
        from bench import soak

        return soak.main(a.minutes, a.seed, a.dir)
    if a.names == ["failover-chaos"]:
        from bench import failover_chaos

        return failover_chaos.main(a.etcd, a.nodes, a.scale, a.only, a.dir)
    if a.names == ["report"]:
        print(f"wrote {report.render()}")
        return 0
    found, unusable = discover()
    if not a.names:
        if a.json:
            rows = [{"name": name, "what": one.what, "sides": list(one.sides)} for name, one in found.items()]
            print(json.dumps(rows, indent=2))
        else:
            show(found, unusable)
        return 0
    failed = [name for name in choose(found, a.names) if not run(name, found[name], a.rounds, a.scale)]
    if failed:
        print(f"could not run: {', '.join(failed)}")
    return 1 if failed else 0


def run(name: str, benchmark: frame.Benchmark, rounds: int | None, scale: float) -> bool:
    print(f"{name}: {benchmark.what}", flush=True)
    try:
        result = frame.run(name, benchmark, rounds=rounds, scale=scale)
    except Exception as error:  # one that breaks must not take the others with it
        print(f"  could not run: {type(error).__name__}: {error}", flush=True)
        return False
    print(report.table(result))
    print(f"  kept in {frame.save(result)}\n", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
