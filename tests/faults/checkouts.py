"""An earlier version of Ottla, from the history of this repository, and brokers that run it."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.kit.broker_process import BrokerProcess

ROOT = Path(__file__).parents[2]
# Upgrades begin with this commit, the last one without `ottla cluster restart`.
EARLIER = "b6d156c3e78e32bcc54e6104f27996e98da83439"


def earlier_checkout(folder: Path) -> Path:
    """Unpack the earlier version; the test is skipped where the history does not go back to it."""
    try:
        packed = subprocess.run(
            ["git", "archive", "--format=tar", EARLIER], cwd=ROOT, capture_output=True, check=False, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if packed.returncode:
        pytest.skip(f"commit {EARLIER[:7]} is not in this clone: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="tar")
    return folder


class VersionedBroker(BrokerProcess):
    """A broker that runs another checkout of Ottla as long as it has one."""

    checkout: Path | None = None

    def _program(self) -> list[str]:
        if self.checkout is None:
            return super()._program()
        return ["env", f"PYTHONPATH={self.checkout / 'src'}", sys.executable, "-P", "-m", "ottla.broker"]

    def where_its_code_is(self) -> Path:
        """Return the file that its program runs."""
        line = [*self._program()[:-2], "-c", "import ottla.broker; print(ottla.broker.__file__)"]
        return Path(subprocess.run(line, capture_output=True, check=True, text=True, timeout=60).stdout.strip())
