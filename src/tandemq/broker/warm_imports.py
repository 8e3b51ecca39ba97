"""Loads what only bursts need before the first one comes, in a thread.

Importing numpy takes a tenth of a second, which nobody's request should wait for.
"""

import importlib

LATER = ("tandemq.formats.batch_arrays", "tandemq.formats.index_arrays")
"""Modules that hot paths import when they are first needed."""


def load_arrays() -> None:
    for name in LATER:
        importlib.import_module(name)
