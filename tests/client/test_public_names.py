"""What `import ottla` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ottla


def test_every_public_name_can_be_imported() -> None:
    """Each from the place that the type checker is told of."""
    for name in ottla.__all__:
        assert getattr(ottla, name) is not None
        assert name in dir(ottla)


def test_other_names_are_attribute_errors() -> None:
    """As in any module."""
    with pytest.raises(AttributeError, match="no attribute 'Colour'"):
        _ = ottla.Colour


def test_the_import_alone_brings_in_none_of_the_client() -> None:
    """Names come in when they are first used."""
    code = "import sys, ottla; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert {"asyncio", "construct", "cramjam", "ottla.client", "ottla.protocol"}.isdisjoint(loaded.stdout.split())


def test_the_producer_comes_without_the_broker() -> None:
    """And without what only other rooms need."""
    code = "import sys; from ottla import Producer; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)

    assert {"construct", "kazoo", "javaproperties", "ottla.broker", "rich"}.isdisjoint(loaded.stdout.split())
