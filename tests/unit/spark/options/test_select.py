"""What both sources share: wrong options are refused by name, value and range."""

import pytest

from tandemq.errors import ConfigError
from tandemq.spark.options import PullOptions, parse

T0 = 1_700_000_000_000


def pull(**given: str) -> PullOptions:
    return parse(PullOptions, {"nameserver": "n:1", "subscribe": "t", **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "t"}, "nameserver: missing"),
        ({"nameserver": "n:1"}, "one of subscribe, subscribePattern or assign"),
        ({"nameserver": "n:1", "subscribe": "t", "assign": '{"t":[0]}'}, "only one may be given"),
        ({"nameserver": "n:1", "subscribe": "a b"}, "subscribe: the topic name 'a b' has characters"),
        ({"nameserver": "n:1", "subscribePattern": "("}, "subscribePattern='\\('"),
        ({"nameserver": "n:1", "assign": '{"t": 1}'}, "assign: 't' needs a list"),
        ({"nameserver": "n:1", "assign": "nonsense"}, "assign='nonsense': not JSON"),
        ({"nameserver": "n:1", "subscribe": "t", "startingOffset": "latest"}, "did you mean 'startingOffsets'"),
        ({"nameserver": "n:1", "subscribe": "t", "startingOffsets": "soon"}, "startingOffsets='soon'"),
        ({"nameserver": "n:1", "subscribe": "t", "startingOffsets": '{"t": {"0": -3}}'}, "-3 must be an offset"),
        (
            {"nameserver": "n:1", "subscribe": "t", "startingTimestamp": str(T0), "startingOffsets": "latest"},
            "only one",
        ),
        (
            {"nameserver": "n:1", "subscribe": "t", "startingOffsets": "Earliest"},
            "'Earliest': must be earliest, latest",
        ),
        (
            {"nameserver": "n:1", "subscribe": "t", "startingTimestamp": "1700000000"},
            "startingTimestamp=1700000000: must be .* 100000000000 to .* are these seconds",
        ),
        (
            {"nameserver": "n:1", "subscribe": "t", "endingTimestamp": "1700000000000000"},
            "endingTimestamp=1700000000000000: .* are these microseconds",
        ),
        (
            {"nameserver": "n:1", "subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": 1700000000}}'},
            "startingOffsetsByTimestamp: 't' queue 0=1700000000: .* are these seconds",
        ),
        (
            {"nameserver": "n:1", "subscribe": "t", "startingTimestamp": str(T0 + 1), "endingTimestamp": str(T0)},
            "must not be after endingTimestamp",
        ),
        ({"nameserver": "n:1", "subscribe": "t", "columns": "body,keys,body"}, "'body' is there twice"),
        ({"nameserver": "n:1", "subscribe": "t", "columns": "colour"}, "columns: no message has 'colour'"),
        ({"nameserver": "n:1", "subscribe": "t", "schema": "kafka", "columns": "body"}, "no message has 'body'"),
        ({"nameserver": "n:1", "subscribe": "t", "accessKey": "a"}, "accessKey is given without secretKey"),
        ({"nameserver": "n:1", "subscribe": "t", "tlsClientTrustCertPath": "/ca"}, "need useTLS=true"),
        ({"nameserver": "n:1", "subscribe": "t", "sql": "a > 1", "tags": "x"}, "only one may be given"),
        ({"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}, "that is Kafka's; here it is 'nameserver'"),
        ({"nameserver": "n:1", "subscribe": "t", "endingOffsets": "earliest"}, "nothing could be read"),
        ({"nameserver": "n:1", "subscribe": "t", "maxTriggerDelay": "soon"}, "maxTriggerDelay='soon'"),
        ({"nameserver": "n:1", "subscribe": "t", "minPartitions": "-1"}, "minPartitions=-1: must be at least 0"),
        (
            {"nameserver": "n:1", "subscribe": "t", "readFrom": "both"},
            "'both' is neither slave, master, observer, any nor HOST:PORT",
        ),
        ({"nameserver": "n:1", "subscribe": "t", "commitGroupOffsets": "true"}, "needs groupId"),
        (
            {"nameserver": "n:1", "subscribe": "t", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
            "minOffsetsPerTrigger=6 must not be above",
        ),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, str], message: str) -> None:
    """Never a silent default."""
    with pytest.raises(ConfigError, match=message):
        parse(PullOptions, given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", str(T0)),
        ("endingOffsetsByTimestamp", f'{{"t": {{"0": {T0}}}}}'),
    ],
)
def test_a_stream_has_no_end(name: str, value: str) -> None:
    """An option that would be ignored is refused."""
    with pytest.raises(ConfigError, match=f"{name}=.*a stream has no end"):
        pull(**{name: value}).check_stream()
    pull().check_stream()


def test_topics_are_selected_by_list_pattern_or_assignment() -> None:
    assert pull(subscribe="a, b").selects("b", system=False)
    assert not pull(subscribe="a").selects("ab", system=False)
    assert pull(subscribe="", subscribePattern="o.*").selects("orders", system=False)
    assert not pull(subscribe="", subscribePattern="o").selects("orders", system=False)
    assert pull(subscribe="", assign='{"b/t": [0]}').selects("t", system=False)


def test_columns_tags_and_keys_are_lists() -> None:
    assert pull(columns="body, keys").wanted_columns == ("body", "keys")
    assert pull(tags="a || b,c").wanted_tags == {"a", "b", "c"}
    assert pull(tags="*").wanted_tags == frozenset()
    assert pull(keys="k1,k2").wanted_keys == {"k1", "k2"}


def test_kafkas_columns_come_with_or_without_headers() -> None:
    assert pull(schema="kafka").wanted_columns[-1] == "headers"
    assert pull(schema="kafka", includeHeaders="false").wanted_columns[-1] == "timestampType"
