"""Fetch the JavaScript libraries of the console's page from the npm registry, with `npm pack`.

    python -m scripts.vendor_console          # the versions of VENDORED.json
    python -m scripts.vendor_console --check  # only compare: exit 1 if a file differs

`console/static/vendor/VENDORED.json` lists every file with its package, its version, its licence, and the hash of the
file in the package and of the file here. They differ where `changes` says so: browsers resolve no bare names such as
"preact", and nothing that is served may need a bundler.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parent.parent / "console" / "static" / "vendor"
LIST = VENDOR / "VENDORED.json"


def changed(content: bytes, changes: list[dict[str, str]]) -> bytes:
    """Return a file with its changes made. ValueError if one of them does not fit."""
    text = content.decode()
    for change in changes:
        if "append" in change:
            text += change["append"]
        elif change["replace"] not in text:
            raise ValueError(f"{change['replace']!r} is not in the file")
        else:
            text = text.replace(change["replace"], change["by"])
    return text.encode()


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def packed(package: str, version: str, folder: Path) -> tarfile.TarFile:
    """Download a package."""
    command = ["npm", "pack", "--silent", f"{package}@{version}"]
    name = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    return tarfile.open(folder / name)


def main() -> int:
    """Write or compare all files; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    is_check = parser.parse_args().check
    listed: dict[str, Any] = json.loads(LIST.read_text())
    differs = False
    with tempfile.TemporaryDirectory() as folder:
        for entry in listed["files"]:
            with packed(entry["package"], entry["version"], Path(folder)) as archive:
                member = archive.extractfile(f"package/{entry['source']}")
                assert member is not None
                original = member.read()
            content = changed(original, entry["changes"])
            is_same = digest(original) == entry["source_sha256"] and digest(content) == entry["sha256"]
            differs |= not is_same
            sys.stdout.write(f"{entry['file']}: {'as listed' if is_same else 'DIFFERS'}\n")
            if not is_check:
                (VENDOR / entry["file"]).write_bytes(content)
                entry["source_sha256"], entry["sha256"] = digest(original), digest(content)
    if not is_check:
        LIST.write_text(json.dumps(listed, indent=2) + "\n")
        return 0
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
