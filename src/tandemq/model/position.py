"""The two kinds of offset, as types of their own so that they are never mixed."""

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""A byte position in the commit log of a broker group."""

QueueOffset = NewType("QueueOffset", int)
"""The index of a message in one (topic, queue)."""
