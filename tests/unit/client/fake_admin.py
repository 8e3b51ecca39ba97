"""An admin client whose requests are answered by a table, for tests of its parts."""

from collections.abc import Callable
from typing import Any

from tests.unit.client.fake_cluster import FakeCluster

from tandemq.client.admin import Admin
from tandemq.codec import bodies, fastjson
from tandemq.codec.codes import RequestCode
from tandemq.codec.command import Command
from tandemq.model.topic import QueueRef


def made(answers: dict[int, Callable[[str, Command], Any]] | None = None, **given: Any) -> tuple[Admin, FakeCluster]:
    cluster = FakeCluster(**given)
    cluster.on.update(answers or {})
    return Admin(session=cluster.session()), cluster


def json_body(value: object) -> Command:
    return Command(0, None, fastjson.dumps(value))


def queue_table(table: dict[QueueRef, Any], **more: Any) -> Command:
    """A body with an `offsetTable` as brokers write it."""
    return Command(0, None, fastjson.dumps_unquoted({"offsetTable": bodies.queue_table_json(table), **more}))


def asked(cluster: FakeCluster, code: RequestCode) -> list[Command]:
    return [command for command in cluster.commands if command.code == code]
