"""`tandemq topic`: list, create, delete, status, route."""

from typing import Annotated

import typer

from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv, note, parse_pairs, show, with_admin
from tandemq.client.admin import Admin
from tandemq.errors import ClientError
from tandemq.model.topic import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX, TopicConfig

app = typer.Typer(help="List, create, delete and inspect topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.")]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="Only the brokers of this cluster.")]

PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}
SYSTEM = ("RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_XXXX", "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")
SYSTEM_OTHERS = ("BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC")


@app.command("list")
def list_(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    everything: Annotated[bool, typer.Option("--all", help="System, retry and dead letter topics too.")] = False,
    as_json: Json = False,
) -> None:
    """The topics that name servers know."""

    async def names(admin: Admin) -> list[str]:
        brokers = await admin.cluster()
        # Brokers register topics named after themselves, their cluster and its replies: plumbing as well.
        own = {*brokers.groups, *brokers.clusters, *(f"{name}_REPLY_TOPIC" for name in brokers.clusters)}
        return [topic for topic in await admin.topics() if everything or not _is_system(topic, own)]

    rows = [{"topic": name} for name in with_admin(namesrv, names)]
    show(rows, {"topic": "TOPIC"}, as_json=as_json, empty="no topics yet; `tandemq topic create NAME` makes one")


def _is_system(topic: str, own: set[str]) -> bool:
    prefixes = (RETRY_PREFIX, DLQ_PREFIX, *SYSTEM)
    return topic.startswith(prefixes) or topic in own or topic in SYSTEM_OTHERS


@app.command()
def create(
    topic: Topic,
    queues: Annotated[int, typer.Option("--queues", "-q", min=1, max=1024, help="Queues on each broker.")] = 8,
    perm: Annotated[str, typer.Option(help="r, w or rw.")] = "rw",
    order: Annotated[bool, typer.Option("--order", help="Mark as a topic of ordered messages.")] = False,
    attribute: Annotated[list[str] | None, typer.Option(help="name=value; may be repeated.")] = None,
    cluster: Cluster = None,
    broker: Annotated[list[str] | None, typer.Option("--broker", "-b", help="Only this broker name.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Create a topic on the masters of the cluster, or change it."""
    if perm not in PERMS:
        raise ClientError(f"--perm {perm}: must be one of {', '.join(PERMS)}")
    config = TopicConfig(
        name=topic,
        read_queues=queues,
        write_queues=queues,
        perm=PERMS[perm],
        order=order,
        attributes=parse_pairs(attribute or (), "--attribute"),
    )
    names = with_admin(namesrv, lambda admin: admin.create_topic(config, cluster=cluster, brokers=broker or ()))
    rows = [{"broker": name, "topic": topic, "queues": queues, "perm": perm} for name in names]
    show(rows, {"broker": "BROKER", "topic": "TOPIC", "queues": "QUEUES", "perm": "PERM"}, as_json=as_json)


@app.command()
def delete(
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    cluster: Cluster = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Delete a topic with all its messages and offsets."""
    if not yes and not as_json:
        typer.confirm(f"Delete topic {topic} with all its messages?", abort=True, err=True)

    async def work(admin: Admin) -> list[str]:
        await admin.route(topic)  # a misspelt name should fail, not succeed at deleting nothing
        return await admin.delete_topic(topic, cluster=cluster)

    names = with_admin(namesrv, work)
    if as_json:
        show([{"broker": name, "topic": topic} for name in names], {}, as_json=True)
    else:
        note(f"topic {topic} is deleted on {', '.join(names)}")


@app.command()
def status(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Offsets and last write of every queue."""
    rows = [
        {
            "broker": item.queue.broker_name,
            "queueId": item.queue.queue_id,
            "minOffset": item.min_offset,
            "maxOffset": item.max_offset,
            "messages": item.count,
            "lastUpdateMs": item.last_update_ms,
        }
        for item in with_admin(namesrv, lambda admin: admin.topic_status(topic))
    ]
    headings = {
        "broker": "BROKER",
        "queueId": "QUEUE",
        "minOffset": "FIRST",
        "maxOffset": "NEXT",
        "messages": "MESSAGES",
        "lastUpdateMs": "LAST WRITE",
    }
    show(rows, headings, as_json=as_json)


@app.command()
def route(topic: Topic, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """Which brokers have the topic, and how many queues of it."""
    found = with_admin(namesrv, lambda admin: admin.route(topic))
    groups = {group.name: group for group in found.groups}
    rows = []
    for data in found.queues:
        group = groups.get(data.broker_name)
        addresses = {str(i): a for i, a in sorted(group.addresses.items())} if group else {}
        rows.append(
            {
                "broker": data.broker_name,
                "cluster": group.cluster if group else "",
                "readQueues": data.read_queues,
                "writeQueues": data.write_queues,
                "perm": "".join(letter for letter in "rw" if data.perm & PERMS[letter]),
                "addresses": addresses,
            }
        )
    headings = {
        "broker": "BROKER",
        "cluster": "CLUSTER",
        "readQueues": "READ",
        "writeQueues": "WRITE",
        "perm": "PERM",
        "addresses": "ADDRESSES (0 = MASTER)",
    }
    show(rows, headings, as_json=as_json)
