"""CRC-32C, the checksum of record batches and of producer snapshots: `crc32c(data, crc_before=0)`.

The package `crc32c` looks up its own version when it is imported. That takes longer than importing any module of ours,
and in every command of the client. So its compiled module is loaded without the package around it.
"""

from __future__ import annotations

import importlib.util
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c  # noqa: PLC0414 - exported


def _compiled() -> Any:
    package = importlib.util.find_spec("crc32c")
    assert package is not None
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    crc32c = _compiled().crc32c
