"""`tandemq group`: list, create, delete, lag, reset."""

import asyncio
import dataclasses
from typing import Annotated, Any

import typer

from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv, note, parse_time, show, with_admin
from tandemq.cli.suggestions import complete_group, complete_topic
from tandemq.client.admin import LATEST, Admin
from tandemq.client.admin_views import GroupMember, GroupProgress
from tandemq.errors import ClientError
from tandemq.model.topic import SubscriptionGroupConfig

app = typer.Typer(
    help="List, create, delete consumer groups; see and move how far they have come.", no_args_is_help=True
)

Group = Annotated[str, typer.Argument(help="Name of the consumer group.", autocompletion=complete_group)]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="Only the brokers of this cluster.")]
INTERNAL = ("CID_RMQ_SYS_", "CID_ONSAPI", "CID_ONS-HTTP", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "__MONITOR_CONSUMER")
INTERNAL_OTHERS = ("SELF_TEST_C_GROUP", "SELF_TEST_P_GROUP")


@app.command("list")
def list_(
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only groups that consume this topic.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="RocketMQ's internal groups too.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """List the consumer groups that brokers know, with their members online."""

    async def work(admin: Admin) -> list[dict[str, Any]]:
        groups = await admin.groups()
        names = [name for name in groups if everything or not _is_internal(name)]
        if topic is not None:
            consuming = set(await admin.groups_of_topic(topic))
            names = [name for name in names if name in consuming]
        members = await asyncio.gather(*(admin.members(name) for name in names))
        return [
            {
                "group": name,
                "members": len(online),
                "consumeEnable": groups[name].consume_enable,
                "broadcastEnable": groups[name].consume_broadcast_enable,
                "retryMaxTimes": groups[name].retry_max_times,
                "retryQueues": groups[name].retry_queues,
            }
            for name, online in zip(names, members, strict=True)
        ]

    headings = {
        "group": "GROUP",
        "members": "ONLINE",
        "consumeEnable": "ENABLED",
        "broadcastEnable": "BROADCAST",
        "retryMaxTimes": "RETRIES",
        "retryQueues": "RETRY QUEUES",
    }
    show(with_admin(namesrv, work), headings, as_json=as_json, empty="no consumer groups yet")


async def _check_known(admin: Admin, group: str) -> None:
    if group in await admin.groups() or await admin.members(group):
        return
    raise ClientError(f"group {group!r} is not known to any broker; `tandemq group list` shows those that are")


@app.command()
def clients(group: Group, namesrv: Namesrv = DEFAULT_NAMESRV, as_json: Json = False) -> None:
    """List the clients of a group that are online, and what they subscribe to."""

    async def work(admin: Admin) -> list[GroupMember]:
        found = await admin.members(group)
        if not found:
            await _check_known(admin, group)
        return found

    rows = [
        {
            "clientId": member.client_id,
            "address": member.address,
            "language": member.language,
            "version": member.version,
            "brokers": member.brokers,
            "subscriptions": dict(member.subscriptions),
        }
        for member in with_admin(namesrv, work)
    ]
    headings = {
        "clientId": "CLIENT",
        "address": "ADDRESS",
        "language": "LANGUAGE",
        "brokers": "BROKERS",
        "subscriptions": "SUBSCRIPTIONS",
    }
    show(rows, headings, as_json=as_json, empty=f"no client of group {group} is online")


def _is_internal(name: str) -> bool:
    return name.startswith(INTERNAL) or name in INTERNAL_OTHERS


@app.command()
def create(
    group: Annotated[str, typer.Argument(help="Name of the consumer group.")],
    retry_max: Annotated[
        int | None, typer.Option(min=-1, help="Retries before the dead letter queue. Default: 16.")
    ] = None,
    retry_queues: Annotated[
        int | None, typer.Option(min=0, help="Queues of the retry topic; 0 drops failed messages. Default: 1.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enabled/--disabled", help="Whether it may consume. Default: it may.")
    ] = None,
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether it may broadcast. Default: it may.")
    ] = None,
    cluster: Cluster = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Create a consumer group. Of a group that is there only what is given changes."""
    given = {
        "retry_max_times": retry_max,
        "retry_queues": retry_queues,
        "consume_enable": enabled,
        "consume_broadcast_enable": broadcast,
    }
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}

    async def work(admin: Admin) -> list[dict[str, Any]]:
        known = (await admin.groups()).get(group)
        config = dataclasses.replace(known or SubscriptionGroupConfig(name=group), **changes)
        names = await admin.create_group(config, cluster=cluster)
        result = "created" if known is None else "changed"
        return [
            {"broker": name, "group": group, "retryMaxTimes": config.retry_max_times, "result": result}
            for name in names
        ]

    headings = {"broker": "BROKER", "group": "GROUP", "retryMaxTimes": "RETRIES", "result": "RESULT"}
    show(with_admin(namesrv, work), headings, as_json=as_json)


@app.command()
def delete(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="Leave its offsets on the brokers.")] = False,
    cluster: Cluster = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Delete a consumer group and, unless told otherwise, its offsets."""
    if not yes and not as_json:
        typer.confirm(f"Delete group {group}{'' if keep_offsets else ' and its offsets'}?", abort=True, err=True)

    async def work(admin: Admin) -> list[str]:
        await _check_known(admin, group)
        return await admin.delete_group(group, cluster=cluster, offsets=not keep_offsets)

    names = with_admin(namesrv, work)
    if as_json:
        show([{"broker": name, "group": group} for name in names], {}, as_json=True)
    else:
        note(f"group {group} is deleted on {', '.join(names)}")


@app.command()
def lag(
    group: Group,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")] = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Show how far the group has come in every queue, and how much is left."""

    async def work(admin: Admin) -> GroupProgress:
        progress = await admin.progress(group, topic)
        if not progress.queues:
            await _check_known(admin, group)
        return progress

    found = with_admin(namesrv, work)
    rows = [
        {
            "topic": item.queue.topic,
            "broker": item.queue.broker_name,
            "queueId": item.queue.queue_id,
            "brokerOffset": item.broker_offset,
            "consumerOffset": item.consumer_offset,
            "lag": item.lag,
            "lastTimestampMs": item.last_timestamp_ms,
        }
        for item in found.queues
    ]
    headings = {
        "topic": "TOPIC",
        "broker": "BROKER",
        "queueId": "QUEUE",
        "brokerOffset": "NEXT",
        "consumerOffset": "CONSUMED",
        "lag": "LAG",
        "lastTimestampMs": "LAST CONSUMED",
    }
    show(rows, headings, as_json=as_json, empty=f"group {group} has consumed nothing")
    if rows and not as_json:
        note(f"total lag {found.lag}, {found.consume_tps:.1f} messages/s")


@app.command()
def reset(
    group: Group,
    topic: Annotated[str, typer.Argument(help="The topic whose offsets are moved.", autocompletion=complete_topic)],
    to: Annotated[str, typer.Option(help="earliest, latest, a time (2026-05-01T10:00, 15m) or milliseconds.")],
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Move a group to the beginning, the end or a time; members that run follow at once."""
    when = {"earliest": 0, "latest": LATEST}.get(to)
    moment = parse_time(to) if when is None else when
    moved = with_admin(namesrv, lambda admin: admin.reset_offsets(group, topic, moment))
    rows = [
        {"topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in moved.items()
    ]
    headings = {"topic": "TOPIC", "broker": "BROKER", "queueId": "QUEUE", "offset": "OFFSET"}
    show(rows, headings, as_json=as_json, empty=f"group {group} has no offsets of {topic} to move")
