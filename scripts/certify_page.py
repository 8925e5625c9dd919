"""Write the list of checks in docs/CERTIFY.md, from the checks themselves.

Run with `make docs`; a test compares the page with the checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.client.certify.check import Check
from ottla.client.certify.harmless import BETWEEN_BROKERS
from ottla.client.certify.table import SUBJECTS
from ottla.protocol.api import Api

PAGE: Final = Path(__file__).parent.parent / "docs" / "CERTIFY.md"
_START: Final = "<!-- The rest is written by `make docs`. -->\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """Return the page: its text by hand, then the checks."""
    by_hand, start, _ = PAGE.read_text().partition(_START)
    parts = [by_hand, start]
    for subject in SUBJECTS:
        parts.append(f"\n## {subject.subject}: {subject.about}\n\n")
        named = [check for check in subject.declared if not _is_of_an_api(check)]
        parts += ["| check | what must hold | needs |\n|---|---|---|\n"]
        parts += [f"| `{check.name}` | {check.holds} | {_needs(check)} |\n" for check in named]
        labels = [check.name for check in subject.declared if _is_of_an_api(check)]
        if labels:
            parts.append(
                "\nAnd one check for each of these APIs: every version that is offered and known here gets a "
                f"well-formed answer to a harmless request. {', '.join(labels)}.\n"
            )
            between = ", ".join(sorted(api.label for api in BETWEEN_BROKERS))
            parts.append(f"\nNot asked, because only brokers send them: {between}.\n")
    return "".join(parts)


def _is_of_an_api(check: Check) -> bool:
    return check.name in {api.label for api in Api}


def _needs(check: Check) -> str:
    needs = [f"{api.label} {version}" for api, version in check.apis.items()]
    if check.brokers > 1:
        needs.append(f"{check.brokers} brokers")
    if check.harms:
        needs.append("`--harm-command`")
    return ", ".join(needs)


if __name__ == "__main__":
    main()
