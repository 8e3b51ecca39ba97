"""Log lines: one per event, limited under floods."""

import io
import logging

from tandemq.logs import LineFormatter, RateLimit, setup


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("tandemq.x", logging.WARNING, __file__, 1, text, values, None)


def test_floods_are_cut_and_counted() -> None:
    now = 0.0
    limit = RateLimit(burst=3, window=10.0, now=lambda: now)
    passed = [limit.filter(record("refused peer=%s", n)) for n in range(100)]
    assert passed == [True] * 3 + [False] * 97
    assert limit.filter(record("something else"))
    now = 10.0
    again = record("refused peer=%s", 1)
    assert limit.filter(again)
    assert again.getMessage() == "refused peer=1 (and 97 more like it left out)"


def test_memory_of_the_limit_is_bounded() -> None:
    limit = RateLimit(now=lambda: 0.0)
    for number in range(5000):
        limit.filter(record(f"text {number}"))
    assert len(limit._seen) <= 1024


def test_tracebacks_stay_on_their_line() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError as error:
        broken = logging.LogRecord(
            "tandemq.x", logging.ERROR, __file__, 1, "failed", (), (type(error), error, error.__traceback__)
        )
    line = LineFormatter().format(broken)
    assert "\n" not in line
    assert "ValueError: first | second" in line


def test_setup_logs_our_rooms_only() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("tandemq")
    handlers, level, propagate = list(logger.handlers), logger.level, logger.propagate
    try:
        setup("INFO", stream)
        logging.getLogger("tandemq.room").info("ready port=%d", 5)
        logging.getLogger("tandemq.room").debug("not shown")
    finally:
        logger.handlers, logger.level, logger.propagate = handlers, level, propagate
        logger.setLevel(level)
    assert stream.getvalue().endswith(" INFO tandemq.room ready port=5\n")
    assert stream.getvalue().count("\n") == 1
