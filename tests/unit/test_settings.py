"""Options are parsed and checked by what is declared of them."""

from dataclasses import dataclass
from enum import Enum

import pytest

from tandemq.errors import ConfigError
from tandemq.settings import check, overridden, plain_number, setting, settings_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    size: int = setting("size", 5, "A size.", unit="bytes", minimum=1, maximum=10)
    ratio: float = setting("ratio", 0.5, "A ratio.", minimum=0)
    on: bool = setting("on", True, "A switch.")
    colour: Colour = setting("colour", Colour.RED, "A colour.")
    name: str = setting("name", "", "A name.")

    def __post_init__(self) -> None:
        check(self)


def test_texts_become_typed_values() -> None:
    config = overridden(Config(), {"size": " 7 ", "ratio": "1e3", "on": "FALSE", "colour": "blue", "name": "x"})
    assert config == Config(size=7, ratio=1000.0, on=False, colour=Colour.BLUE, name="x")


@pytest.mark.parametrize(
    ("key", "text", "told"),
    [
        ("size", "11", "size=11: must be from 1 to 10 bytes"),
        ("size", "x", "size='x': must be a whole number"),
        ("ratio", "-1", "ratio=-1.0: must be at least 0"),
        ("on", "maybe", "on='maybe': must be true or false"),
        ("colour", "green", "colour='green': must be one of red, blue"),
    ],
)
def test_wrong_values_name_key_value_and_range(key: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        overridden(Config(), {key: text})


def test_numbers_have_all_their_digits() -> None:
    assert [plain_number(value) for value in (12_582_912, 1e9, 0.5, 0)] == ["12582912", "1000000000", "0.5", "0"]


def test_every_declared_option_is_found() -> None:
    assert [described.key for _, described in settings_of(Config).values()] == ["size", "ratio", "on", "colour", "name"]
