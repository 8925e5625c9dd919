"""What a broker does without when it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# Nothing listens there, so the broker gives up right after it has imported everything.
REFUSED = (
    "zookeeper.connect=127.0.0.1:1",
    "zookeeper.connection.timeout.ms=1",
    "ottla.guardian.enable=false",
)
UNUSED = (
    *("attr", "cramjam", "cryptography", "greenlet", "importlib.metadata", "jwt", "numpy", "pygments", "rich"),
    *("bz2", "javaproperties", "lzma", "shutil", "tempfile", "typing_extensions"),
    # Until somebody connects to the HTTP port.
    *("email", "html", "http", "prometheus_client", "wsgiref", "xml"),
)
# Runs a broker, and then tells about its process. Whether structlog can use rich is for the process to keep.
SCRIPT = """
import gc, json, sys
from ottla.broker.__main__ import main
code = main(sys.argv[1:])
about = {"code": code, "modules": list(sys.modules), "collects": gc.isenabled(), "frozen": gc.get_freeze_count()}
import rich
print(json.dumps(about | {"rich": rich.__name__}))
"""


def started() -> dict[str, Any]:
    """Run a broker up to its first call of ZooKeeper; return what its process tells."""
    overrides = [part for override in REFUSED for part in ("--override", override)]
    command = [sys.executable, "-c", SCRIPT, *overrides]
    output = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    about: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert about["code"] == 1
    return about


def test_a_broker_starts_without_what_it_may_never_need() -> None:
    """Each of these takes milliseconds and megabytes, and most brokers never use it, or only later."""
    about = started()

    assert "ottla.broker.app.server" in about["modules"]
    assert set(UNUSED) & set(about["modules"]) == set()
    # Hidden from structlog alone.
    assert about["rich"] == "rich"


def test_what_was_imported_is_not_collected_but_all_else_is() -> None:
    """The collector is off during the imports, and leaves alone what they made."""
    about = started()

    assert about["collects"]
    assert about["frozen"] > 10_000
