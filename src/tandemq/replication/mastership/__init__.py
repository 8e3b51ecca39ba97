"""The parts of a master's state machine, each with rules of its own; `master_state.py` puts them together.

    core.py           what all of them share: record, log, phase, register, and how each of these changes
    followers.py      who is connected, and how a session ends
    asking.py      asking: whom it must hear before it opens, and with which number
    taking.py         copying from the furthest replica what this one lacks
    opening.py        from a log that is whole and on disk to the first write
    reign.py          the beginning and the end of a reign
    rivals.py         meeting another number, another register or another reign
    greeting.py       from the first word of a peer to what it is told
    welcoming.py      from the WELCOME to the first byte of log
    membership.py     who counts, who joins, who leaves
    minting.py        how a group of the version before gets its register
    classic.py        RocketMQ's slaves
    word.py           the word of its members while the coordinator is away
    confirming.py     what readers may see
    housekeeping.py   what time does to the sessions
    pacing.py         when new bytes leave for whom
    streaming.py      which bytes go to whom, in which frame

A part holds those below it and is told of others by callbacks given at construction: nobody holds the one above.
"""
