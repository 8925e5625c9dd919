"""Files in Java's properties format."""

from __future__ import annotations

from pathlib import Path

import javaproperties
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.kit.examples import examples

from ottla.client.local_cluster.properties import write_properties


@examples(100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from([" a", "\\", "a\\nb", "ü/😀", "#=:"]))
def test_what_is_written_reads_back_the_same(tmp_path: Path, value: str) -> None:
    """Every value, among them paths with blanks, backslashes and letters past ASCII."""
    path = tmp_path / "properties"
    write_properties(path, {"a.b": value, "c": "d"})

    assert javaproperties.loads(path.read_bytes()) == {"a.b": value, "c": "d"}


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    """A broker option may be a password."""
    write_properties(tmp_path / "properties", {"a": "b"})

    assert (tmp_path / "properties").stat().st_mode & 0o777 == 0o600
