"""The command line of the pipeline: one command for each job, whose flags are the fields of the job's settings.

Standard output is for data, standard error for talk. Exit codes: 0 when all is well, 1 when it is not, 2 when the job
could not run as it was asked to. Spark comes in where a job starts.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import click

from ottla.client.cli.terminal.function_commands import CommandGroup, FunctionCommand, Option, run_program
from ottla.pipeline.config import ENVIRONMENT_FILE, kinds, load
from ottla.pipeline.errors import EXIT_FAILED, PipelineError
from ottla.pipeline.settings import JOBS, JobSettings

HELP: Final = {
    "archive": """Write topics to Parquet, by topic and date, each record exactly once.

    \b
    Examples:
      python -m ottla.pipeline archive --topics orders,payments --archive /data/archive
      python -m ottla.pipeline archive --topics orders --archive /data/archive --once
      python -m ottla.pipeline archive --topic-pattern 'shop[.].*' --archive s3a://bucket/archive \\
        --schema 'id BIGINT NOT NULL, total DOUBLE' --dead-letter-topic shop.dead
    """,
    "aggregate": """Count, sum up and take quantiles of JSON events, by key and window of time.

    \b
    Examples:
      python -m ottla.pipeline aggregate --topics orders --key-field customer --value-field total \\
        --window '1 minute' --output-topic orders.by-minute --output /data/by-minute
    """,
    "replay": """Send an archive, other Parquet files or the files of a log to a topic again.

    \b
    Examples:
      python -m ottla.pipeline replay --from /data/archive --target-topic orders.again --records-per-second 5000
      python -m ottla.pipeline replay --from /backup/broker-1 --source-format ottla-log --own-topics -b other:9092
    """,
    "audit": """Prove that an archive is complete: gaps, duplicates, order and content of every partition.

    Exits with 0 when it is, with 1 when something was found, with 2 when the comparison could not be made.

    \b
    Examples:
      python -m ottla.pipeline audit --archive /data/archive
      python -m ottla.pipeline audit --archive /data/archive --against log --log-dir /backup/broker-1
      python -m ottla.pipeline audit --archive /data/archive --against manifests --format json
    """,
}

app = CommandGroup(
    "ottla.pipeline",
    """Jobs on Spark for topics of Ottla, or of any Kafka cluster.

    Settings come from --config FILE, then from OTTLA_PIPELINE_* in the environment, then from flags.
    """,
)

_File = Annotated[
    Path | None,
    Option("--config", envvar=ENVIRONMENT_FILE, metavar="FILE", help="Settings: a .yaml, .toml or .json file."),
]


def _register(job: str, settings: type[JobSettings]) -> None:
    """Make a job a command."""

    def command(*, config: Path | None, **flags: object) -> None:
        raise click.exceptions.Exit(
            _run(job, load(settings, job, JOBS, file=config, environment=os.environ, flags=flags))
        )

    own = sorted(dataclasses.fields(settings), key=lambda field: field.name in kinds(JobSettings))
    parameters = [*(_parameter(field.name, _flag(settings, field)) for field in own), _parameter("config", _File)]
    app.add_command(FunctionCommand(job, command, lambda: parameters, HELP[job]))


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _flag(settings: type[JobSettings], field: dataclasses.Field[Any]) -> object:
    """Return the annotation from which a flag is made; values stay text, which `load` reads in one way for all."""
    kind = kinds(settings)[field.name]
    name = field.metadata["flag"] or "--" + field.name.replace("_", "-")
    names = [name] + (["-b"] if field.name == "bootstrap_servers" else [])
    help_text = field.metadata["help"]
    if kind.is_mapping:
        return Annotated[list[str] | None, Option(*names, metavar="KEY=VALUE", help=help_text)]
    if kind.item is bool:
        both = f"{name}/--no-{name.removeprefix('--')}"
        return Annotated[bool | None, Option(both, help=help_text, show_default=str(field.default).lower())]
    metavar = "|".join(field.metadata["choices"]) or {int: "NUMBER", float: "NUMBER"}.get(kind.item, "TEXT")
    default: Any = field.default
    shown = ",".join(map(str, default)) if kind.is_list else default
    return Annotated[
        str | None,
        Option(
            *names,
            metavar=metavar,
            help=help_text,
            show_default=str(shown) if shown not in (None, "") else False,
        ),
    ]


def _run(job: str, settings: JobSettings) -> int:
    try:
        from ottla.pipeline.session import build_session
        from ottla.pipeline.topics import check_cluster
    except ModuleNotFoundError as missing:
        raise PipelineError(f'{missing.name} is not installed: `pip install "ottla[pipeline]"` brings it') from missing
    if settings.needs_cluster:
        # Before Spark starts, which takes seconds, and would print a trace for each of its attempts.
        check_cluster(settings)
    module = importlib.import_module(f"ottla.pipeline.jobs.{job}")
    run: Callable[[Any, JobSettings], int] = module.run
    spark = build_session(settings, app_name=f"ottla-{job}")
    try:
        return run(spark, settings)
    finally:
        spark.stop()


def _tell(message: str) -> None:
    click.secho("Error: ", err=True, nl=False, fg="red", bold=True)
    click.echo(message, err=True)


def main() -> None:
    """Run the command line; what goes wrong is said in plain words."""
    from ottla.client.errors import KafkaError

    # PySpark warns of each pandas that is newer than itself, where one is installed; we use none of it.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    try:
        sys.exit(run_program(app, "python -m ottla.pipeline"))
    except PipelineError as problem:
        _tell(str(problem))
        sys.exit(problem.exit_code)
    except KafkaError as problem:
        _tell(str(problem))
        sys.exit(EXIT_FAILED)


for _job, _settings in JOBS.items():
    _register(_job, _settings)
