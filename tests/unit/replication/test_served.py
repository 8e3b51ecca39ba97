"""Sessions of those who connect to an HA port, up to the HELLO."""

from tandemq.codec import ha_session as ha
from tandemq.codec.ha_reasons import Reason
from tandemq.codec.ha_session import Challenge, Preamble, Refuse
from tandemq.replication.decisions import Close, Decision, Send
from tandemq.replication.epochs import Promise
from tandemq.replication.served import UNPROVEN_MAX, Claim, ServedSessions
from tandemq.replication.session import SessionState


def served(key: str = "") -> ServedSessions:
    return ServedSessions(
        group="g",
        shared_key=key,
        claim=lambda: Claim(Promise(7, "e7"), "a:1#1", None),
        new_id=iter(f"id{number}" for number in range(100)).__next__,
        guest="slave",
        host="master",
    )


def said(out: list[Decision]) -> list[ha.Event]:
    return [event for one in out if isinstance(one, Send) for event in ha.SessionReader().feed(one.data)]


def test_who_greets_is_challenged_with_what_is_claimed() -> None:
    one, out = served(), list[Decision]()
    one.connected(1, "10.0.0.1:9", 0.0)
    one.greeted(out, one.sessions[1], Preamble(ha.VERSION, "nonce"), 0.0)
    (challenge,) = said(out)
    assert isinstance(challenge, Challenge)
    assert (challenge.number, challenge.id, challenge.replica) == (7, "e7", "a:1#1")
    assert one.sessions[1].state is SessionState.CHALLENGED


def test_an_unknown_version_is_told_which_ones_are_known() -> None:
    one, out = served(), list[Decision]()
    one.connected(1, "10.0.0.1:9", 0.0)
    one.greeted(out, one.sessions[1], Preamble(99, "nonce"), 0.0)
    (refuse,) = said(out)
    assert isinstance(refuse, Refuse)
    assert refuse.code is Reason.VERSION
    assert not one.sessions


def test_one_that_has_not_greeted_is_closed_without_a_frame_it_could_not_read() -> None:
    one, out = served(), list[Decision]()
    one.connected(1, "10.0.0.1:9", 0.0)
    one.close(out, one.sessions[1], Reason.CLASSIC_REFUSED, "no", 0.0)
    assert said(out) == []
    assert [decision.reason for decision in out if isinstance(decision, Close)] == [Reason.CLASSIC_REFUSED]


def test_the_host_with_most_unproven_connections_makes_room() -> None:
    one = served()
    one.connected(0, "10.0.0.1:9", 0.0)
    closed = [
        decision.session
        for number in range(1, UNPROVEN_MAX + 1)
        for decision in one.connected(number, "10.0.0.2:9", 0.0)
        if isinstance(decision, Close)
    ]
    assert closed == [1], "its oldest, not the only one of another host"
    assert 0 in one.sessions


def test_what_nobody_says_at_this_point_ends_the_session_and_the_rest_is_not_read() -> None:
    one, out, heard = served(), list[Decision](), list[ha.Event]()
    one.connected(1, "10.0.0.1:9", 0.0)
    two = ha.encode_control(Preamble(ha.VERSION, "nonce")) * 2

    def handle(out: list[Decision], session: object, event: ha.Event, now: float) -> None:
        heard.append(event)
        one.unexpected(out, one.sessions[1], event, now)

    one.read(out, one.sessions[1], two, 0.0, handle)
    assert len(heard) == 1
    assert not one.sessions
