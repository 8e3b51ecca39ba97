"""Why sessions end: every code says what to do, and unknown ones are no surprise."""

from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Refuse


def test_every_reason_tells_the_operator_what_to_do() -> None:
    assert all(reason.advice for reason in Reason)
    assert Refuse("from the future", "").code is Reason.LOST
