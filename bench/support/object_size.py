"""How much memory objects take, all that they refer to included, as the interpreter counts it."""

from __future__ import annotations

import gc
import sys
import types
from enum import Enum

# What belongs to the program, and not to the data.
_SHARED = (type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, Enum)


def object_bytes(root: object) -> int:
    """Return the bytes of an object and of everything that can be reached from it; shared ones count once."""
    seen = {id(root)}
    left = [root]
    total = 0
    while left:
        each = left.pop()
        total += sys.getsizeof(each)
        for referred in gc.get_referents(each):
            if id(referred) not in seen and not isinstance(referred, _SHARED):
                seen.add(id(referred))
                left.append(referred)
    return total
