"""RocketMQ's client versions are ordinals on the wire: 20 for each minor, a snapshot and a release in turn. Pure."""

_FIRST_4, _FIRST_5 = 213, 413
_MINOR = 20


def version_text(number: int) -> str:
    """Returns the release that an ordinal of MQVersion stands for, or the number where that is not sure."""
    if number < _FIRST_4:
        return f"number {number}" if number else "not told"
    major, first = (5, _FIRST_5) if number >= _FIRST_5 else (4, _FIRST_4)
    release = number + (number - first) % 2  # a snapshot comes before its release
    minor, patch = divmod((release - first) // 2, _MINOR // 2)
    return f"{major}.{minor}.{patch}" + (" snapshot" if release != number else "")
