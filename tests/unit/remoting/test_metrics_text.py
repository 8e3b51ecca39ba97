"""Prometheus' own parser reads back what is written, in pieces that are never large."""

from prometheus_client.parser import text_string_to_metric_families

from tandemq.remoting.metrics_text import PIECE_SAMPLES, Family, counter, gauge, rendered, rendered_histogram


def _read(text: str) -> list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]:
    return [
        (family.name, family.type, family.documentation, [(s.name, s.labels, s.value) for s in family.samples])
        for family in text_string_to_metric_families(text)
    ]


def test_gauges_and_counters_read_back() -> None:
    text = "".join(rendered([gauge("up", "Always 1.", 1), counter("sent_total", "Sent.", 2.5)]))
    assert _read(text) == [
        ("up", "gauge", "Always 1.", [("up", {}, 1.0)]),
        ("sent", "counter", "Sent.", [("sent_total", {}, 2.5)]),
    ]


def test_label_values_may_hold_anything() -> None:
    """Quotes, backslashes and line ends come back as they were."""
    value = 'a "b" \\ c\nd'
    text = "".join(rendered([Family("g", "gauge", "G.", [((value, "x"), 1)], ("one", "two"))]))
    assert _read(text)[0][3] == [("g", {"one": value, "two": "x"}, 1.0)]


def test_many_samples_come_in_pieces() -> None:
    """A piece is made only when it is asked for."""
    made = 0

    def samples(count: int):  # type: ignore[no-untyped-def]
        nonlocal made
        for number in range(count):
            made += 1
            yield (str(number),), number

    pieces = rendered([Family("g", "gauge", "G.", samples(3 * PIECE_SAMPLES), ("n",))])
    next(pieces), next(pieces)
    assert made == PIECE_SAMPLES
    assert len(list(pieces)) == 2
    assert made == 3 * PIECE_SAMPLES


def test_a_histogram_reads_back() -> None:
    text = "".join(rendered_histogram("wait_seconds", "Waits.", [("0.1", 2), ("+Inf", 3)], 1.5))
    ((name, kind, _, samples),) = _read(text)
    assert (name, kind) == ("wait_seconds", "histogram")
    assert samples == [
        ("wait_seconds_bucket", {"le": "0.1"}, 2.0),
        ("wait_seconds_bucket", {"le": "+Inf"}, 3.0),
        ("wait_seconds_count", {}, 3.0),
        ("wait_seconds_sum", {}, 1.5),
    ]
