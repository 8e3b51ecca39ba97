"""Whatever we can write we read back, however the bytes are split."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tandemq.codec import fastjson
from tandemq.codec.command import Command, decode_command, encode_request
from tandemq.codec.fastjson import ObjectKey
from tandemq.codec.frame import JSON, ROCKETMQ, FrameReader
from tandemq.codec.header_binary import LANGUAGES
from tandemq.codec.properties import parse_properties
from tandemq.codec.send_header import SendHeader, decode_send, send_ext

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
filled = text.filter(bool)
int32 = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    Command,
    st.integers(-32768, 32767),
    st.dictionaries(filled, filled, max_size=6),
    st.binary(max_size=100),
    opaque=int32,
    flag=st.integers(0, 3),
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 1000),
    remark=st.none() | filled,
)


@given(st.lists(st.tuples(commands, st.sampled_from((JSON, ROCKETMQ))), max_size=5), st.data())
def test_commands_survive_any_split(sent: list[tuple[Command, int]], data: st.DataObject) -> None:
    stream = b"".join(encode_request(command, encoding) for command, encoding in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader()
    found = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += [decode_command(frame) for frame in reader.feed(stream[start:stop])]
    assert found == [command for command, _ in sent]
    assert reader.pending_size == 0


scalars = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text | st.floats(allow_nan=False, allow_infinity=False)
)
keys = (
    st.integers(-(2**31), 2**31) | text | st.dictionaries(filled, st.integers(0, 99) | text, max_size=3).map(ObjectKey)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


def without_none(value: Any) -> Any:
    """What is left after writing: members that are None go."""
    if isinstance(value, dict):
        return {key: without_none(member) for key, member in value.items() if member is not None}
    return [without_none(member) for member in value] if isinstance(value, list) else value


@given(values)
def test_fastjson(value: Any) -> None:
    for dumps in (fastjson.dumps_unquoted, fastjson.dumps_pretty):
        assert fastjson.loads(dumps(value)) == without_none(value)


@given(st.dictionaries(text, scalars, max_size=5))
def test_standard_json_is_read_by_anybody(value: dict[str, Any]) -> None:

    found = json.loads(fastjson.dumps(value))
    assert found == without_none(value)
    assert not any(isinstance(member, float) and math.isnan(member) for member in found.values())


sends = st.builds(
    SendHeader,
    producerGroup=filled, topic=filled, defaultTopic=filled, defaultTopicQueueNums=int32, queueId=int32, sysFlag=int32,
    bornTimestamp=st.integers(0, 2**53), flag=int32, properties=text, reconsumeTimes=st.integers(0, 99),
    unitMode=st.booleans(), maxReconsumeTimes=st.none() | st.integers(0, 99), batch=st.booleans(), bname=text,
    version=st.just(407),
)  # fmt: skip


@given(sends, st.booleans(), st.sampled_from((JSON, ROCKETMQ)))
def test_send_headers(send: SendHeader, short: bool, encoding: int) -> None:
    code = 310 if short else 10
    _, header, _ = FrameReader().feed(encode_request(Command(code, send_ext(send, short=short)), encoding))[0]
    found = decode_send(header, code, encoding)
    for name in SendHeader.__struct_fields__:
        assert getattr(found, name) == getattr(send, name), name


@given(st.text(max_size=200))
def test_any_text_has_properties(written: str) -> None:
    """No text but a broken \\u escape is refused, and no entry is invented."""
    try:
        entries = parse_properties(written)
    except Exception as error:
        assert "four hex digits" in str(error)  # noqa: PT017
    else:
        assert len(entries) <= 1 + written.count("\n") + written.count("\r")
