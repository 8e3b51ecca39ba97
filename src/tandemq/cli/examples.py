"""The examples at the end of every `--help`, in one place, so that a test can check them all."""

from typing import Any

EXAMPLES: dict[str, tuple[str, ...]] = {
    "tandemq": (
        "tandemq up --detach",
        "tandemq send orders 'the first message'",
        "tandemq ha status",
        "tandemq --context prod topic list --json",
    ),
    "tandemq up": ("tandemq up", "tandemq up --detach --slaves 2", "tandemq up --async --dir /tmp/try-it"),
    "tandemq down": ("tandemq down", "tandemq down --dir /tmp/try-it"),
    "tandemq demo": ("tandemq demo --seconds 4", "tandemq demo --no-spark --json"),
    "tandemq console": (
        "tandemq console",
        "tandemq console -n '10.0.0.1:9876;10.0.0.2:9876' --listen 127.0.0.1:8088",
        "tandemq --context prod console --listen 127.0.0.1:0",
    ),
    "tandemq namesrv": ("tandemq namesrv", "tandemq namesrv -c namesrv.conf --set listenPort=9877"),
    "tandemq broker": (
        "tandemq broker -c broker.conf",
        "tandemq broker -c broker.conf -n '10.0.0.1:9876;10.0.0.2:9876' --set brokerRole=SLAVE --set brokerId=1",
        "tandemq broker -c broker.conf --groups 4",
        "tandemq broker list",
    ),
    "tandemq broker list": ("tandemq broker list", "tandemq broker list --json"),
    "tandemq broker config": (
        "tandemq broker config 10.0.0.1:10911",
        "tandemq broker config 10.0.0.1:10911 --filter flush",
        "tandemq broker config 10.0.0.1:10911 --set fileReservedTime=48",
    ),
    "tandemq broker promote": (
        "tandemq broker promote 10.0.0.2:10911",
        "tandemq broker promote 10.0.0.2:10911 --role ASYNC_MASTER",
        "tandemq broker promote 10.0.0.2:10911 --accept-loss",
    ),
    "tandemq broker demote": ("tandemq broker demote 10.0.0.1:10911",),
    "tandemq topic": ("tandemq topic list", "tandemq topic create orders --queues 16"),
    "tandemq topic list": ("tandemq topic list", "tandemq topic list --all --json"),
    "tandemq topic create": (
        "tandemq topic create orders --queues 16",
        "tandemq topic create orders --attribute tandemq.copies=2:durable",
        "tandemq topic create orders --perm r",
    ),
    "tandemq topic delete": ("tandemq topic delete orders", "tandemq topic delete orders --yes"),
    "tandemq topic status": ("tandemq topic status orders",),
    "tandemq topic route": ("tandemq topic route orders",),
    "tandemq group": ("tandemq group list", "tandemq group lag billing"),
    "tandemq group list": ("tandemq group list", "tandemq group list --topic orders"),
    "tandemq group create": ("tandemq group create billing --retry-max 5",),
    "tandemq group delete": ("tandemq group delete billing", "tandemq group delete billing --keep-offsets --yes"),
    "tandemq group lag": ("tandemq group lag billing", "tandemq group lag billing --topic orders --json"),
    "tandemq group clients": ("tandemq group clients billing",),
    "tandemq group reset": (
        "tandemq group reset billing orders --to earliest",
        "tandemq group reset billing orders --to 2026-05-01T10:00",
        "tandemq group reset billing orders --to 15m",
    ),
    "tandemq dlq": ("tandemq dlq list", "tandemq dlq list billing", "tandemq dlq resend billing"),
    "tandemq dlq list": ("tandemq dlq list", "tandemq dlq list billing --limit 20"),
    "tandemq dlq resend": (
        "tandemq dlq resend billing",
        "tandemq dlq resend billing --key order-1",
        "tandemq dlq resend billing --dry-run",
    ),
    "tandemq send": (
        "tandemq send orders 'hello tandem' --tag new --key order-1",
        "tandemq send orders --copies 2:durable < lines.txt",
        "tandemq send orders --file invoice.pdf",
        "tandemq send orders --count 20000 --size 1024",
    ),
    "tandemq consume": (
        "tandemq consume orders",
        "tandemq consume orders --follow --tags 'new || paid'",
        "tandemq consume orders --from 15m --limit 10 --json",
        "tandemq consume orders --sql 'amount > 100'",
    ),
    "tandemq message": ("tandemq message id 7F0000012F3D9C2048444D9104F5CEBA", "tandemq message key orders order-1"),
    "tandemq message id": (
        "tandemq message id 7F0000012F3D9C2048444D9104F5CEBA",
        "tandemq message id 7F00000100002A9F0000000000000000 --json",
    ),
    "tandemq message key": ("tandemq message key orders order-1", "tandemq message key orders order-1 --since 1h"),
    "tandemq message offset": ("tandemq message offset orders 0 42",),
    "tandemq context": (
        "tandemq context add prod -n '10.0.0.1:9876;10.0.0.2:9876' --tls --use",
        "tandemq context list",
        "tandemq --context prod topic list",
    ),
    "tandemq context add": (
        "tandemq context add local -n 127.0.0.1:9876",
        "tandemq context add prod -n '10.0.0.1:9876;10.0.0.2:9876' --tls-ca ca.pem --tls-cert me.pem --tls-key me.key",
        "tandemq context add prod -n 10.0.0.1:9876 --access-key operator --use",
    ),
    "tandemq context list": ("tandemq context list",),
    "tandemq context show": ("tandemq context show", "tandemq context show prod --json"),
    "tandemq context use": ("tandemq context use prod", "tandemq context use -"),
    "tandemq context remove": ("tandemq context remove prod",),
    "tandemq config": (
        "tandemq config -c broker.conf --changed",
        "tandemq config -c namesrv.conf --daemon namesrv",
        "tandemq config -c broker.conf --json",
    ),
    "tandemq doctor": ("tandemq doctor", "tandemq doctor --dir /var/lib/tandemq --json"),
    "tandemq ha": ("tandemq ha status", "tandemq ha wait --in-sync --timeout 120"),
    "tandemq ha status": (
        "tandemq ha status",
        "tandemq ha status --watch",
        "tandemq ha status --broker broker-a --json",
    ),
    "tandemq ha wait": (
        "tandemq ha wait --in-sync --timeout 120",
        "tandemq ha wait --writable --broker broker-a",
        "tandemq ha wait --caught-up --address 10.0.0.9:10911 --timeout 3600",
    ),
    "tandemq ha switch": ("tandemq ha switch 10.0.0.2:10911",),
    "tandemq ha pause": ("tandemq ha pause --broker broker-a",),
    "tandemq ha resume": ("tandemq ha resume",),
    "tandemq ha revoke": ("tandemq ha revoke -c /etc/tandemq/broker.conf",),
    "tandemq ha home": ("tandemq ha home 10.0.0.1:10911", "tandemq ha home 10.0.0.1:10911 --to group"),
    "tandemq ha forget": (
        "tandemq ha forget 10.0.0.3:10911",
        "tandemq ha forget 10.0.0.3:10911#5f2c0a9d8e7b6c41 --address 10.0.0.1:10911",
    ),
    "tandemq sim": ("tandemq sim --seeds 200", "tandemq sim --seed 42 --trace"),
    "tandemq bench": ("tandemq bench", "tandemq bench store.append", "tandemq bench soak --minutes 60"),
    "tandemq spark": (
        "tandemq spark stats --store tandemq-data/slave-1/store",
        "tandemq spark audit /var/lib/tandemq/a/store,/var/lib/tandemq/b/store",
    ),
    "tandemq spark archive": ("tandemq spark archive -n 127.0.0.1:9876 --topics orders --to lake",),
    "tandemq spark replay": (
        "tandemq spark replay --lake lake --to 127.0.0.1:9876 --name again --state replay-state --to-topic orders2",
    ),
    "tandemq spark audit": ("tandemq spark audit /var/lib/tandemq/a/store,/var/lib/tandemq/b/store",),
    "tandemq spark reindex": ("tandemq spark reindex /var/lib/tandemq/store",),
    "tandemq spark stats": ("tandemq spark stats --store tandemq-data/slave-1/store",),
    "tandemq store": (
        "tandemq store verify /var/lib/tandemq/store",
        "tandemq store dump /var/lib/tandemq/store --topic orders --limit 10",
    ),
    "tandemq store verify": (
        "tandemq store verify /var/lib/tandemq/store",
        "tandemq store verify /var/lib/tandemq/store --repair",
    ),
    "tandemq store backup": (
        "tandemq store backup /var/lib/tandemq/store /mnt/backup/broker-a",
        "tandemq store backup /var/lib/tandemq/store s3://backups/broker-a",
        "tandemq store backup /var/lib/tandemq/store 's3://backups/broker-a?endpoint_override=minio:9000&scheme=http'",
    ),
    "tandemq store restore": (
        "tandemq store restore /mnt/backup/broker-a /var/lib/tandemq/store",
        "tandemq store restore s3://backups/broker-a /var/lib/tandemq/store",
    ),
    "tandemq store dump": ("tandemq store dump /var/lib/tandemq/store --topic orders --queue 0 --from 100 --limit 10",),
    "tandemq store rebuild": (
        "tandemq store rebuild /var/lib/tandemq/store",
        "tandemq store rebuild --online 10.0.0.1:10911",
    ),
}
"""Command -> lines that show its use."""


def with_examples(path: str, text: str = "") -> str:
    """Returns the end of a command's help: its examples below the text."""
    shown = [line.replace("[", "\\[") for line in EXAMPLES[path]]
    return "\n\n".join([*([text] if text else []), "[bold]Examples[/bold]", *(f"  {line}" for line in shown)])


def attach_examples(command: Any, path: str) -> None:
    """Puts the examples below the help of a command and of all its sub-commands."""
    if path in EXAMPLES:
        command.epilog = with_examples(path)
    for name, member in getattr(command, "commands", {}).items():
        attach_examples(member, f"{path} {name}")
