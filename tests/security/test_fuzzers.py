"""The fuzzers: each parser takes 10,000 inputs, and each fuzzer finds the five bugs that are planted for it.

A planted bug stands for a kind of mistake: a size that is believed, a number that is not checked, a text that can't be
written, a word of the protocol that is not expected, an end that is not looked for. A fuzzer that finds none of them
only looks busy.
"""

from collections.abc import Callable

import pytest
from tests.security.fuzz import Target, findings, targets

from tandemq.errors import TandemError

TARGETS = targets()
COUNT = 10_000
SEED = 20


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_takes_ten_thousand_inputs(name: str) -> None:
    found = list(findings(TARGETS[name], SEED, COUNT))
    assert not found, "\n".join(map(str, found[:3]))


class Planted(Exception):
    """Only a planted bug raises this."""


def _has_size(data: bytes) -> bool:
    return b"\x7f\xff\xff\xff" in data


def _has_huge_number(data: bytes) -> bool:
    return b"9223372036854775808" in data or b"\x7f\xff\xff\xff\xff\xff\xff\xff" in data


def _has_rare_byte(data: bytes) -> bool:
    return b"\xed" in data


def _is_cut_short(target: Target) -> Callable[[bytes], bool]:
    shortest = min(map(len, target.corpus))
    return lambda data: 0 < len(data) < shortest and any(one.startswith(data) for one in target.corpus)


def _is_repeated(target: Target) -> Callable[[bytes], bool]:
    longest = max(map(len, target.corpus))
    return lambda data: len(data) > longest + 32


def bugs(target: Target) -> dict[str, Callable[[bytes], bool]]:
    return {
        "a size that is believed": _has_size,
        "a number that is not checked": _has_huge_number,
        "a byte that is no text": _has_rare_byte,
        "an end that is not looked for": _is_cut_short(target),
        "more than was ever sent": _is_repeated(target),
    }


@pytest.mark.parametrize("name", TARGETS)
def test_a_fuzzer_finds_the_five_bugs_that_are_planted_for_it(name: str) -> None:
    target = TARGETS[name]
    missed = []
    for bug, happens in bugs(target).items():

        def parse(data: bytes, happens: Callable[[bytes], bool] = happens) -> None:
            if happens(data):
                raise Planted

        planted = Target(parse, target.corpus, target.words)
        if next(findings(planted, SEED, COUNT), None) is None:
            missed.append(bug)
    assert not missed


def test_a_refusal_in_the_parsers_own_words_is_no_finding() -> None:
    def refuses(data: bytes) -> None:
        raise TandemError("no")

    assert not list(findings(Target(refuses, [b"x"]), SEED, 10))


def test_the_same_seed_makes_the_same_inputs() -> None:
    from tests.security.fuzz import inputs

    target = TARGETS["json"]
    assert list(inputs(target, 1, 50)) == list(inputs(target, 1, 50)) != list(inputs(target, 2, 50))
