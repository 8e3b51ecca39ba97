"""Messages by key, by unique id and by offset."""

import asyncio

import pytest

from tandemq.broker.handlers.query import QueryHandlers
from tandemq.codec.command import Command
from tandemq.errors import ReplyError
from tandemq.formats.record import parse_record, walk
from tandemq.testing.broker_parts import BrokerParts, FakeConnection, decoded

FOREVER = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}


def test_query_by_key_and_unique_key() -> None:
    """Records as stored, newest first; the unique key query has its own limit; nothing found is 22."""

    async def story() -> None:
        parts = BrokerParts()
        for n in range(5):
            parts.send("T", b"%d" % n, KEYS=f"a k{n}", UNIQ_KEY=f"U{n}")
        await parts.settle()
        handlers = QueryHandlers(parts.store)

        def query(key: str, count: str = "64", **ext: str) -> list[bytes]:
            fields = {"topic": "T", "key": key, "maxNum": count, **FOREVER, **ext}
            (reply,) = decoded(handlers.query(FakeConnection(), Command(12, fields)))  # type: ignore[arg-type]
            assert int(reply.ext["indexLastUpdatePhyoffset"]) == parts.store.dispatched
            body = bytes(reply.body)
            return [parse_record(body, at, at + size).body for at, size, _ in walk(body, 0, len(body))]

        assert sorted(query("a")) == [b"0", b"1", b"2", b"3", b"4"]
        assert len(query("a", "2")) == 2
        assert query("k3") == [b"3"]
        assert query("U4", "0", _UNIQUE_KEY_QUERY="true") == [b"4"]
        with pytest.raises(ReplyError) as caught:
            query("none")
        assert caught.value.code == 22

    asyncio.run(story())


def test_view_by_offset() -> None:
    """The record itself; an offset where none starts is code 1."""

    async def story() -> None:
        parts = BrokerParts()
        parts.send("T", b"first")
        second = parts.send("T", b"second")
        handlers = QueryHandlers(parts.store)
        command = Command(33, {"offset": str(second.physical_offset)})
        (reply,) = decoded(handlers.view(FakeConnection(), command))  # type: ignore[arg-type]
        assert parse_record(reply.body).body == b"second"
        for offset in (second.physical_offset + 1, 10**9, -5):
            with pytest.raises(ReplyError) as caught:
                handlers.view(FakeConnection(), Command(33, {"offset": str(offset)}))  # type: ignore[arg-type]
            assert caught.value.code == 1

    asyncio.run(story())
