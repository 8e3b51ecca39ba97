"""The rule is added once, and nowhere where there is no JVM. What it does is in tests/spark/test_spark_planning.py."""

from importlib.resources import files

import pytest
from py4j.protocol import Py4JError

from tandemq.spark.planning.push_down import RULE, install


def test_a_session_without_a_jvm_keeps_to_options() -> None:
    assert not install(object())


def test_a_spark_that_the_rule_does_not_fit_says_so_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    class Session:
        version = "9.9"

        def experimental(self) -> None:
            raise Py4JError("no such method\nand more")

        @property
        def _jsparkSession(self) -> "Session":
            return self

    assert not install(Session())
    assert capsys.readouterr().err == (
        "tandemq: Spark 9.9: queries read all columns unless options choose them (no such method)\n"
    )


def test_the_rule_is_in_the_package_under_its_name() -> None:
    source = files("tandemq.spark.planning").joinpath("PushDown.java").read_text()
    package, _, name = RULE.rpartition(".")
    assert f"package {package};" in source
    assert f"public class {name} extends Rule" in source
