"""`tandemq topic`: list, create, delete, status, route."""

import asyncio
import dataclasses
from typing import Annotated, Any

import typer

from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv, note, parse_pairs, show, with_admin
from tandemq.cli.suggestions import complete_topic
from tandemq.client.admin import Admin
from tandemq.errors import ClientError, RemotingError, ReplyError
from tandemq.model.ack_level import parse_level
from tandemq.model.topic import DLQ_PREFIX, PERM_READ, PERM_WRITE, RETRY_PREFIX, TopicConfig

app = typer.Typer(help="List, create, delete and inspect topics.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=complete_topic)]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="Only the brokers of this cluster.")]

TOPICS_AT_A_TIME = 16
COPIES_ATTRIBUTE = "tandemq.copies"
"""The attribute that sets the ack level of a topic's messages."""
PERMS = {"r": PERM_READ, "w": PERM_WRITE, "rw": PERM_READ | PERM_WRITE}
SYSTEM = ("RMQ_SYS_", "rmq_sys_", "SCHEDULE_TOPIC_XXXX", "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")
SYSTEM_OTHERS = ("BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC")


@app.command("list")
def list_(
    namesrv: Namesrv = DEFAULT_NAMESRV,
    everything: Annotated[bool, typer.Option("--all", help="System, retry and dead letter topics too.")] = False,
    names_only: Annotated[bool, typer.Option("--names", help="Only the names: asks no broker.")] = False,
    as_json: Json = False,
) -> None:
    """List the topics, with their messages and rates over the last minute."""

    async def names(admin: Admin) -> list[str]:
        brokers = await admin.cluster()
        # Brokers register topics named after themselves, their cluster and its replies: plumbing as well.
        own = {*brokers.groups, *brokers.clusters, *(f"{name}_REPLY_TOPIC" for name in brokers.clusters)}
        return [topic for topic in await admin.topics() if everything or not _is_system(topic, own)]

    async def figures(admin: Admin) -> list[dict[str, Any]]:
        found = await names(admin)
        if names_only:
            return [{"topic": name} for name in found]
        at_a_time = asyncio.Semaphore(TOPICS_AT_A_TIME)
        return list(await asyncio.gather(*(_figures(admin, name, at_a_time) for name in found)))

    headings = {
        "topic": "TOPIC",
        "brokers": "BROKERS",
        "queues": "QUEUES",
        "messages": "MESSAGES",
        "inPerSecond": "IN/S",
        "outPerSecond": "OUT/S",
        "lastUpdateMs": "LAST WRITE",
    }
    shown = {"topic": "TOPIC"} if names_only else headings
    rows = with_admin(namesrv, figures)
    show(rows, shown, as_json=as_json, empty="no topics yet; `tandemq topic create NAME` makes one")


async def _figures(admin: Admin, topic: str, at_a_time: asyncio.Semaphore) -> dict[str, Any]:
    """Returns one line of the list; a topic that no broker answers for has only its name."""
    async with at_a_time:
        try:
            statuses = await admin.topic_status(topic)
            groups = await admin.groups_of_topic(topic)
            rates = {"in": 0.0, "out": 0.0}
            for _, address in await admin.readers(topic):
                rates["in"] += await admin.rate(address, "TOPIC_PUT_NUMS", topic)
                for group in groups:
                    rates["out"] += await admin.rate(address, "GROUP_GET_NUMS", f"{topic}@{group}")
        except (ClientError, RemotingError, ReplyError) as error:
            return {"topic": topic, "error": str(error)}
    return {
        "topic": topic,
        "brokers": len({status.queue.broker_name for status in statuses}),
        "queues": len(statuses),
        "messages": sum(status.count for status in statuses),
        "inPerSecond": round(rates["in"], 1),
        "outPerSecond": round(rates["out"], 1),
        "lastUpdateMs": max((status.last_update_ms for status in statuses), default=0),
    }


def _is_system(topic: str, own: set[str]) -> bool:
    prefixes = (RETRY_PREFIX, DLQ_PREFIX, *SYSTEM)
    return topic.startswith(prefixes) or topic in own or topic in SYSTEM_OTHERS


@app.command()
def create(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    queues: Annotated[
        int | None, typer.Option("--queues", "-q", min=1, max=1024, help="Queues on each broker. Default: 8.")
    ] = None,
    perm: Annotated[str | None, typer.Option(help="r, w or rw. Default: rw.")] = None,
    order: Annotated[bool | None, typer.Option("--order/--no-order", help="A topic of ordered messages.")] = None,
    attribute: Annotated[list[str] | None, typer.Option(help="name=value; may be repeated.")] = None,
    cluster: Cluster = None,
    broker: Annotated[list[str] | None, typer.Option("--broker", "-b", help="Only this broker name.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Create a topic on the masters of the cluster. Of a topic that is there only what is given changes."""
    if perm is not None and perm not in PERMS:
        raise ClientError(f"--perm {perm}: must be one of {', '.join(PERMS)}")
    attributes = parse_pairs(attribute or (), "--attribute")
    if COPIES_ATTRIBUTE in attributes:
        parse_level(attributes[COPIES_ATTRIBUTE])
    changes: dict[str, Any] = {"attributes": attributes}
    if queues is not None:
        changes |= {"read_queues": queues, "write_queues": queues}
    if perm is not None:
        changes["perm"] = PERMS[perm]
    if order is not None:
        changes["order"] = order

    async def work(admin: Admin) -> list[dict[str, Any]]:
        rows = []
        there = await admin.topic_configs(topic)
        for name in await admin.master_names(cluster=cluster, brokers=broker or ()):
            known = there.get(name)
            config = dataclasses.replace(known or TopicConfig(name=topic), **changes)
            await admin.create_topic(config, brokers=[name])
            rows.append(
                {
                    "broker": name,
                    "topic": topic,
                    "queues": config.write_queues,
                    "perm": _perm_text(config.perm),
                    "order": config.order,
                    "attributes": {**(known.attributes if known else {}), **attributes},
                    "result": "created" if known is None else "changed",
                }
            )
        return rows

    headings = {"broker": "BROKER", "topic": "TOPIC", "queues": "QUEUES", "perm": "PERM", "result": "RESULT"}
    show(with_admin(namesrv, work), headings, as_json=as_json)


def _perm_text(perm: int) -> str:
    return "".join(letter for letter in "rw" if perm & PERMS[letter])


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
    """Show offsets and last write of every queue."""
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
    """Show which brokers have the topic, and how many queues of it."""
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
                "perm": _perm_text(data.perm),
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
