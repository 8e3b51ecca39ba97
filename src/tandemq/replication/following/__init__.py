"""The parts of a slave's state machine, each with rules of its own; `slave_state.py` puts them together.

    core.py        what all of them share: record, log, phase, session, and how each of these changes
    promising.py   from the master's challenge to our HELLO: whom to believe, what to promise
    aligning.py    from the WELCOME to START: cutting the log, adopting the master's history
    registers.py   the register and the members a master tells of, and the word it asks for
    receiving.py   log bytes: from a frame to what is appended, confirmed and acknowledged
    donating.py    giving back to a master what it lost

A part holds those below it: nobody holds the one above.
"""
