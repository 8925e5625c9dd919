"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from ottla.client.cli.terminal.function_commands import Option
from ottla.client.cli.terminal.output import Format


def default_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of the default cluster, below the user's data. The working directory does not matter."""
    if given := environment.get("XDG_DATA_HOME"):
        return Path(given) / "ottla"
    shared = "Library/Application Support" if sys.platform == "darwin" else ".local/share"
    return Path(os.path.expanduser("~"), shared, "ottla")


DirectoryOption = Annotated[
    Path | None,
    Option(
        "--dir",
        envvar="OTTLA_DIR",
        metavar="DIR",
        help="Directory of the cluster; it holds the data and identifies the cluster.",
        show_default=str(default_directory()),
    ),
]
FormatOption = Annotated[Format, Option("--format", help="How to print the result.")]
SchemaRegistryOption = Annotated[
    str | None,
    Option(
        "--schema-registry",
        envvar="OTTLA_SCHEMA_REGISTRY",
        metavar="URL",
        help="Where the schemas of Avro, Protobuf and JSON are.",
    ),
]
YesOption = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]


def directory_arguments(directory: Path | None) -> str:
    """Return the arguments that make another command use the same cluster."""
    return "" if directory is None else f" --dir {shlex.quote(str(directory))}"
