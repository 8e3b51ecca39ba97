"""Long answers are made in slices and cut with a note."""

import asyncio

from tandemq.broker.long_answers import LongAnswer, member, quoted_member
from tandemq.codec.command import Command, decode_command
from tandemq.codec.fastjson import ObjectKey
from tandemq.codec.frame import FrameReader
from tandemq.sim.clock import ManualClock


def decoded(frame: bytes) -> Command:
    return decode_command(FrameReader().feed(frame)[0])


def test_members_are_written_as_in_a_whole_object() -> None:
    assert member(3, {"a": None, "b": 1}) == b'3:{"b":1}'
    assert member(ObjectKey({"q": 1}), 2) == b'{"q":1}:2'
    assert quoted_member("3", {"b": 1}) == b'"3":{"b":1}'


def test_others_have_their_turn_while_it_is_made() -> None:
    async def main() -> int:
        clock, turns = ManualClock(), 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        def entries() -> list[bytes]:
            return [b"1"] * 10

        def slow() -> object:
            for entry in entries():
                clock.advance(1.0)
                yield entry

        task = asyncio.create_task(others())
        joined = await LongAnswer(clock).joined(slow())  # type: ignore[arg-type]
        task.cancel()
        assert joined == b"1,1,1,1,1,1,1,1,1,1"
        return turns

    assert asyncio.run(main()) >= 9


def test_what_does_not_fit_is_counted_in_the_remark() -> None:
    async def main() -> None:
        answer = LongAnswer(ManualClock(), size_max=10)
        assert await answer.joined([b"1234", b"1234", b"1234"]) == b"1234,1234"
        assert await answer.joined([b"5678"]) == b""
        assert answer.cut == 2
        assert "cut: 2 more entries" in str(decoded(answer.encoded(Command(1, {}), b"[]")).remark)
        assert decoded(LongAnswer(ManualClock()).encoded(Command(1, {}), b"[]")).remark is None

    asyncio.run(main())
