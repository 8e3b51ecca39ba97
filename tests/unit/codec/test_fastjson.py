"""fastjson's dialect: unquoted integer keys, objects as keys, null members left out."""

import pytest

from tandemq.codec import fastjson
from tandemq.codec.fastjson import ObjectKey
from tandemq.errors import MalformedBody

QUEUE = {"brokerName": "b", "queueId": 0, "topic": "t"}

READ = {
    "ordinary": ('{"a":[1,2.5,true,null,"x"]}', {"a": [1, 2.5, True, None, "x"]}),
    "integer keys": ('{0:"10.0.0.1:10911",1:"b"}', {0: "10.0.0.1:10911", 1: "b"}),
    "negative keys, blanks": ('{ -1 : 2 ,\n"a" : { 3:4 } }', {-1: 2, "a": {3: 4}}),
    "object keys": ('{"o":{{"brokerName":"b","queueId":0,"topic":"t"}:{"x":1}}}', {"o": {ObjectKey(QUEUE): {"x": 1}}}),
    "bare words as keys": ('{table:{"a":"b"}}', {"table": {"a": "b"}}),
    "raw control characters": ('{0:"a\x01b"}', {0: "a\x01b"}),
    "escapes": ('{0:"\\u00e4\\n\\"x"}', {0: 'ä\n"x'}),
    "empty": ("{}", {}),
    "exponent": ("{0:1e3}", {0: 1000.0}),
}


@pytest.mark.parametrize(("text", "value"), READ.values(), ids=READ.keys())
def test_loads(text: str, value: object) -> None:
    assert fastjson.loads(text) == value
    assert fastjson.loads(text.encode()) == value
    assert fastjson.loads(memoryview(text.encode())) == value


@pytest.mark.parametrize(
    "text",
    ["", "{", "{0:", "{0:1", "{0:1,}", "[1,", "{0:1}x", '{"a":"b', "nul", "{[1]:2}", '{{"a":[1]}:2}', "{0 1}", "\ud800",
     "{0:" + "9" * 100 + "}", "[" * 1000, "{0:" * 200, "{:1}"],
)  # fmt: skip
def test_what_is_no_json_raises(text: str) -> None:
    with pytest.raises(MalformedBody):
        fastjson.loads(text.encode("utf-8", "surrogatepass"))


def test_writers() -> None:
    """Integer keys quoted for standard readers, bare for fastjson's; None members are left out; no blanks."""
    value = {"brokerAddrs": {0: "h:1", 1: "i:2"}, "none": None, "list": [1, "a", None], "flag": False, "tps": 0.0}
    assert fastjson.dumps(value) == b'{"brokerAddrs":{"0":"h:1","1":"i:2"},"list":[1,"a",null],"flag":false,"tps":0.0}'
    assert fastjson.dumps_unquoted({"a": {0: 1}}) == b'{"a":{0:1}}'
    assert fastjson.dumps({ObjectKey(QUEUE): 5}) == b'{{"brokerName":"b","queueId":0,"topic":"t"}:5}'
    assert fastjson.dumps({}) == b"{}"
    assert fastjson.dumps([]) == b"[]"


def test_pretty_is_what_config_files_look_like() -> None:
    pretty = fastjson.dumps_pretty({"offsetTable": {"t@g": {0: 1, 1: 2}}, "empty": {}, "list": [1]})
    lines = ["{", '\t"offsetTable":{', '\t\t"t@g":{', "\t\t\t0:1,", "\t\t\t1:2", "\t\t}", "\t},", '\t"empty":{},']
    assert pretty.decode().split("\n") == [*lines, '\t"list":[', "\t\t1", "\t]", "}"]
    assert fastjson.loads(pretty) == {"offsetTable": {"t@g": {0: 1, 1: 2}}, "empty": {}, "list": [1]}


def test_keys_that_are_no_json_keys() -> None:
    with pytest.raises(TypeError):
        fastjson.dumps({(1, 2): 1})
