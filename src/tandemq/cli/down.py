"""`tandemq down`: stops what `tandemq up` started in a directory; the data stays."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from tandemq.cli.local_cluster import DEFAULT_DIRECTORY, ClusterError, LocalCluster
from tandemq.cli.render import Json, print_json

app = typer.Typer(help="Stop what `tandemq up` started; the data stays.")


@app.callback(invoke_without_command=True)
def down(
    directory: Annotated[Path, typer.Option("--dir", help="The directory given to `tandemq up`.")] = DEFAULT_DIRECTORY,
    as_json: Json = False,
) -> None:
    """Stop what `tandemq up` started; the data stays."""
    cluster = LocalCluster.load(directory)
    if cluster is None:
        raise ClusterError(f"{directory} holds no cluster of `tandemq up`; is --dir right?")
    running = [node.name for node in cluster.running()]
    asyncio.run(cluster.stop_all())
    if as_json:
        print_json({"stopped": running})
    else:
        print(f"stopped {', '.join(running)}" if running else "nothing was running")
