"""The garbage collector of a worker looks at what tests make, and at nothing else."""

from __future__ import annotations

import gc
import sys


def test_the_collector_leaves_out_what_the_tests_are_made_of() -> None:
    """Every module that was imported for them, to begin with."""
    watched = {id(each) for each in gc.get_objects()}

    assert gc.isenabled()
    assert id(sys.modules[__name__].__dict__) not in watched
