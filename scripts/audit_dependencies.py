"""Check the locked dependencies for known vulnerabilities, with pip-audit: `make audit`.

    exit code 0    all packages were checked, and none has a known vulnerability
    exit code 1    some have; they are listed
    exit code 2    some could not be checked, because the vulnerability service of PyPI does not answer for them

pip-audit itself reports success when it could check nothing, for example behind a mirror of PyPI without that service.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"


def verdict(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Return the exit code for a report of pip-audit, and the lines to print."""
    packages: Sequence[Mapping[str, Any]] = report["dependencies"]
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'none'}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if lines:
        return 1, lines
    if skipped or not packages:
        count = f"{len(skipped)} of {len(packages)} packages could not be checked"
        return 2, [f"{count}: the vulnerability service of PyPI does not answer from here. Nothing is known of them."]
    return 0, [f"{len(packages)} packages checked, no known vulnerability"]


def main(program: str) -> int:
    """Run pip-audit, and judge what it finds."""
    command = [program, "--requirement", str(LOCK), "--disable-pip", "--require-hashes", "--format", "json"]
    ended = subprocess.run([*command, "--progress-spinner", "off"], check=False, capture_output=True, text=True)
    try:
        code, lines = verdict(json.loads(ended.stdout))
    except ValueError:
        last = ended.stderr.strip().splitlines()[-1:] or ["no output"]
        code, lines = 2, [f"pip-audit could not check anything: {last[0]}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
