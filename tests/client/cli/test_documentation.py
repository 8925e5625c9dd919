"""The pages about the command line are those of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
from scripts.cli_page import page
from scripts.rooms import ROOT

from ottla.client.cli.terminal.nouns import LOCAL, NOUNS, load


def test_the_page_of_commands_is_current() -> None:
    """`make docs` writes it."""
    assert (ROOT / "docs" / "CLI.md").read_text() == page()


def names(command: click.Command) -> Iterator[str]:
    """Return the names of the commands below a noun."""
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield name
            yield from names(each)


def test_the_readme_has_all_nouns_and_their_commands() -> None:
    """In its table."""
    rows = dict(re.findall(r"^\| (`.*?`) \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE))
    listed = {noun: text for cell, text in rows.items() for noun in re.findall(r"`([a-z-]+)`", cell)}
    assert set(LOCAL) | set(NOUNS) <= set(listed)
    missing = {
        f"{noun} {name}"
        for noun in NOUNS
        for name in names(load(noun))
        if not re.search(rf"(?<![a-z-]){re.escape(name)}(?![a-z-])", listed[noun])
    }
    assert missing == set()
