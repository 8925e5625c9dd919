"""A module that is imported when something in it is first used."""

from __future__ import annotations

import importlib
from typing import Any


class LazyModule:
    """Stands for a module. An admin client is often made for one call, and all its requests take long to import."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found
