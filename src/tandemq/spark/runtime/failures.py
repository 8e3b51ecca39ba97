"""Our own sentence out of Spark's stack of wrappers: what people get instead of traces of three languages."""

import re

_OURS = re.compile(r"^\s*(?:\w+: )?tandemq(?:\.\w+)+\.[A-Z]\w*: (.+)$")
"""The last line of a Python traceback of one of our exceptions."""
_PYTHONS = re.compile(r"^\s*([A-Z]\w*(?:Error|Exception|Exit|Interrupt)): (.+)$")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\] ")


def cause_of(text: str) -> str:
    """Returns the sentence of the innermost exception of ours, else of Python, else Spark's own first line."""
    lines = text.splitlines()
    for line in reversed(lines):
        if match := _OURS.match(line):
            return match[1].strip()
    for line in reversed(lines):
        if (match := _PYTHONS.match(line)) and "SparkException" not in match[1]:
            return f"{match[1]}: {match[2].strip()}"
    first = next((line for line in lines if line.strip()), "")
    return _CONDITION.sub("", first).strip() or "Spark failed without a reason"
