"""Settings come from defaults, file, environment and flags, and mistakes are told with their places."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.config import load
from ottla.pipeline.errors import SettingsError
from ottla.pipeline.settings import JOBS, ArchiveSettings, ReplaySettings

NEEDED = {"topics": "orders", "archive": "/data"}


def archive_settings(
    file: Path | None = None, environment: Mapping[str, str] | None = None, **flags: object
) -> ArchiveSettings:
    """Load settings of the archive job."""
    return load(ArchiveSettings, "archive", JOBS, file=file, environment=environment or {}, flags=flags)


def test_the_later_place_counts(tmp_path: Path) -> None:
    """Defaults, file, environment, flags."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "bootstrap_servers: file:1\nshuffle-partitions: 7\narchive:\n  topics: [a, b]\n  archive: /file\n"
        "  max_offsets_per_trigger: 5\nreplay:\n  from: /x\n".replace("from", "source")
    )
    environment = {"OTTLA_PIPELINE_ARCHIVE": "/environment", "OTTLA_PIPELINE_ONCE": "true", "OTHER": "x"}

    settings = archive_settings(file, environment, archive="/flag", max_offsets_per_trigger=None)

    assert settings.bootstrap_servers == "file:1"
    assert settings.shuffle_partitions == 7
    assert settings.topics == ("a", "b")
    assert settings.archive == "/flag"
    assert settings.max_offsets_per_trigger == 5
    assert settings.once
    assert settings.starting_offsets == "earliest"


def test_the_cluster_is_the_one_that_the_command_line_means(tmp_path: Path) -> None:
    """The variable of `ottla`, unless the pipeline has its own, a file or a flag."""
    given = {"topics": "a", "archive": "/x"}
    environment = {"OTTLA_BOOTSTRAP_SERVERS": "shared:1", "OTTLA_DIR": str(tmp_path)}
    assert archive_settings(None, environment, **given).bootstrap_servers == "shared:1"
    own = environment | {"OTTLA_PIPELINE_BOOTSTRAP_SERVERS": "own:1"}
    assert archive_settings(None, own, **given).bootstrap_servers == "own:1"
    assert archive_settings(None, own, **given, bootstrap_servers="flag:1").bootstrap_servers == "flag:1"
    assert archive_settings(None, {"OTTLA_DIR": str(tmp_path)}, **given).bootstrap_servers == "localhost:9092"


def test_a_cluster_that_is_not_there_is_told_in_one_line(tmp_path: Path) -> None:
    """Before Spark starts; and no trace is printed."""
    arguments = ["archive", "--topics", "a", "--archive", str(tmp_path / "archive"), "--once"]
    ran = subprocess.run(
        [sys.executable, "-m", "ottla.pipeline", *arguments],
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: ")
    assert "127.0.0.1:1" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.toml", 'topics = "a,b"\narchive = "/x"\n[client]\n"security.protocol" = "SSL"\n'),
        ("p.json", '{"archive": {"topics": ["a", "b"], "archive": "/x"}, "client": {"security.protocol": "SSL"}}'),
        ("p.yml", "topics: a, b\narchive: /x\nclient:\n  security.protocol: SSL\n"),
    ],
)
def test_files_may_be_yaml_toml_or_json(tmp_path: Path, name: str, text: str) -> None:
    """Sections are for one job, and what stands outside of them for all; a job and a setting may share a name."""
    (tmp_path / name).write_text(text)

    settings = archive_settings(tmp_path / name)

    assert settings.topics == ("a", "b")
    assert settings.client == {"security.protocol": "SSL"}


def test_options_of_the_client_count_one_by_one(tmp_path: Path) -> None:
    """A flag for one of them leaves the others as file and environment have them."""
    file = tmp_path / "p.yaml"
    file.write_text("client:\n  security.protocol: SSL\n  client.id: file\n  ssl.check.hostname: false\n")
    environment = {"OTTLA_PIPELINE_CLIENT_SASL_PASSWORD": "s=e,c"}

    settings = archive_settings(file, environment, **NEEDED, client=["client.id=flag"])

    assert settings.client == {
        "security.protocol": "SSL",
        "client.id": "flag",
        "ssl.check.hostname": "false",
        "sasl.password": "s=e,c",
    }


@pytest.mark.parametrize(
    ("environment", "flags", "message"),
    [
        ({}, {"max_offsets_per_trigger": "many"}, "--max-offsets-per-trigger: a whole number is wanted, not 'many'"),
        ({"OTTLA_PIPELINE_MIN_PARTITIONS": "0"}, {}, "OTTLA_PIPELINE_MIN_PARTITIONS: at least 1, not '0'"),
        ({"OTTLA_PIPELINE_ONCE": "maybe"}, {}, "OTTLA_PIPELINE_ONCE: true or false, not 'maybe'"),
        ({"OTTLA_PIPELINE_TOPIC": "a"}, {}, "there is no setting topic; did you mean topics?"),
        ({}, {"reject": "xml"}, "--reject: one of none, json, not 'xml'"),
        ({}, {"client": ["x"]}, "-X takes KEY=VALUE, not 'x'"),
        ({}, {"topic_pattern": ".*"}, "either --topics or --topic-pattern"),
        ({}, {"archive": ""}, "--archive is missing"),
        ({}, {"dead_letter_topic": "dead"}, "nothing can get to --dead-letter-topic"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(environment: dict[str, str], flags: dict[str, Any], message: str) -> None:
    """Whoever reads the message knows what to change, and where."""
    with pytest.raises(SettingsError) as raised:
        archive_settings(None, environment, **{**NEEDED, **flags})

    assert message in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.yaml", "archive:\n  topisc: a\n", "section archive: there is no setting topisc; did you mean topics?"),
        ("p.yaml", "bootstrap: a\n", "there is no setting bootstrap"),
        ("p.yaml", "a: [\n", "does not parse"),
        ("p.yaml", "- a\n", "must have names and values"),
        ("p.toml", "a = \n", "does not parse"),
        ("p.ini", "", "none of .yaml, .toml and .json"),
        ("p.yaml", "topics: a\narchive: {}\nonce: [1]\n", "once: one value is wanted, not [1]"),
    ],
)
def test_a_wrong_file_is_told_with_its_name(tmp_path: Path, name: str, text: str, message: str) -> None:
    """Also a name that is not one, and a value of another kind."""
    (tmp_path / name).write_text(text)

    with pytest.raises(SettingsError) as raised:
        archive_settings(tmp_path / name)

    assert message in str(raised.value)
    assert name in str(raised.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The message has its name."""
    with pytest.raises(SettingsError, match=r"cannot read .*none\.yaml"):
        archive_settings(tmp_path / "none.yaml")


def test_settings_of_other_jobs_are_passed_over(tmp_path: Path) -> None:
    """One file, or one environment, serves all jobs."""
    environment = {"OTTLA_PIPELINE_ARCHIVE": "/x", "OTTLA_PIPELINE_WINDOW": "1 hour"}

    settings = load(
        ReplaySettings,
        "replay",
        JOBS,
        file=None,
        environment=environment,
        flags={"source": str(tmp_path), "own_topics": True},
    )

    assert settings.source == str(tmp_path)


def test_a_wrong_command_line_ends_with_2_before_spark_starts() -> None:
    """The error is one line, and no trace."""
    command = [sys.executable, "-m", "ottla.pipeline", "archive", "--topics", "a"]

    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)

    assert done.returncode == 2
    assert done.stderr.startswith("Error: --archive is missing")
    assert done.stderr.count("\n") == 1


def test_the_commands_are_the_jobs() -> None:
    """Each has help with examples."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.pipeline", "--help"], check=True, capture_output=True, text=True, timeout=120
    )

    assert all(f"\n  {job} " in done.stdout for job in JOBS)


def test_only_a_session_on_this_machine_is_bound_to_it() -> None:
    """Executors elsewhere must reach the driver; and what the settings say of Spark counts more than our choice."""
    from ottla.pipeline.session import session_options

    settings = archive_settings(None, {}, **NEEDED, spark=["sql.shuffle.partitions=9", "spark.executor.memory=2g"])

    elsewhere = session_options(settings, is_local=False)

    assert "spark.driver.host" not in elsewhere
    assert session_options(settings, is_local=True)["spark.driver.host"] == "127.0.0.1"
    assert elsewhere["spark.sql.shuffle.partitions"] == "9"
    assert elsewhere["spark.executor.memory"] == "2g"
    assert elsewhere["spark.sql.session.timeZone"] == "UTC"
