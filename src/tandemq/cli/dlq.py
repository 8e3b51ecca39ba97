"""`tandemq dlq`: the dead letters of consumer groups."""

from typing import Annotated, Any

import typer

from tandemq.cli.failures import FEWER_COPIES
from tandemq.cli.message import message_row
from tandemq.cli.render import DEFAULT_NAMESRV, Json, Namesrv, note, print_json, show, with_admin
from tandemq.cli.suggestions import complete_group
from tandemq.client.admin import Admin
from tandemq.client.dead_letters import DeadLetters
from tandemq.client.message import ReceivedMessage

app = typer.Typer(help="Dead letters of consumer groups: list them, send them again.", no_args_is_help=True)

HEADINGS = {
    "messageId": "MESSAGE ID",
    "topic": "TOPIC",
    "storedMs": "STORED",
    "reconsumeTimes": "TRIES",
    "keys": "KEYS",
    "body": "BODY",
}


@app.command("list")
def list_(
    group: Annotated[
        str | None, typer.Argument(help="Show the messages of this group.", autocompletion=complete_group)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="At most this many, the oldest first.")] = 64,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """List the groups that have dead letters, or the dead letters of one group."""
    if group is None:
        counts = with_admin(namesrv, lambda admin: DeadLetters(admin).groups())
        rows = [{"group": one.group, "messages": one.count, "lastMs": one.last_ms} for one in counts]
        headings = {"group": "GROUP", "messages": "DEAD LETTERS", "lastMs": "LAST"}
        show(rows, headings, as_json=as_json, empty="no group has dead letters")
        return

    async def messages(admin: Admin) -> list[dict[str, Any]]:
        letters, found = DeadLetters(admin), []
        for queue in await letters.queues(group):
            async for message in letters.read(queue):
                found.append(message_row(message))
                if len(found) >= limit:
                    return found
        return found

    show(with_admin(namesrv, messages), HEADINGS, as_json=as_json, empty=f"group {group} has no dead letters")


@app.command()
def resend(
    group: Annotated[str, typer.Argument(help="Name of the consumer group.", autocompletion=complete_group)],
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only messages with this key.")] = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Only the message with this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=0, help="At most this many; 0: all.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Also those that were sent again before.")] = False,
    to_topic: Annotated[
        bool, typer.Option("--to-topic", help="To the topic they came from, where every group gets them.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    namesrv: Namesrv = DEFAULT_NAMESRV,
    as_json: Json = False,
) -> None:
    """Send dead letters again: to this group alone, those since the last time. They stay in the dead letter queue."""

    def wanted(message: ReceivedMessage) -> bool:
        has_key = key is None or key in message.keys
        return has_key and message_id in (None, message.message_id, message.offset_message_id)

    chosen = again or key is not None or message_id is not None

    async def work(admin: Admin) -> list[dict[str, Any]]:
        rows = []
        resending = DeadLetters(admin).resend(
            group, wanted=wanted, again=chosen, to_topic=to_topic, limit=limit, dry_run=dry_run
        )
        async for message, result in resending:
            status = "not sent" if result is None else result.status.value
            rows.append({**message_row(message), "status": status, "newMessageId": result and result.message_id})
        return rows

    rows = with_admin(namesrv, work)
    if as_json:
        print_json(rows)
    else:
        nothing = f"no dead letters of {group} to send{'' if chosen else '; --again takes those sent before'}"
        show(rows, {"status": "STATUS", **HEADINGS}, as_json=False, empty=nothing)
        if rows:
            note(f"{len(rows)} dead letters {'would be ' if dry_run else ''}sent again")
    if not dry_run and not all(row["status"] == "SEND_OK" for row in rows):
        raise typer.Exit(FEWER_COPIES)
