"""The Spark session of a job: on this machine, unless a master is named or spark-submit has chosen one."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.pipeline.errors import SettingsError
from ottla.pipeline.sources import register

if TYPE_CHECKING:
    from ottla.pipeline.settings import JobSettings

# What goes wrong in Spark: as PySpark words it, or as Java does where it has no words for it.
SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)

# Set by spark-submit for the program that it starts: Java runs already, with the master that it was told.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def build_session(settings: JobSettings, app_name: str = "ottla") -> SparkSession:
    """Return a session with our sources; SettingsError where Spark cannot start."""
    submitted = _SUBMITTED in os.environ
    if not submitted:
        _check_java()
    builder = SparkSession.builder.appName(app_name)
    master = settings.master or (None if submitted else "local[*]")
    is_local = master is not None and master.startswith("local")
    for name, value in session_options(settings, is_local=is_local).items():
        builder = builder.config(name, value)
    if master is not None:
        builder = builder.master(master)
    # Tasks need the modules that this process has; on a cluster the nodes say where their Python is.
    if is_local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        spark = builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        raise SettingsError(f"Spark does not start: {error}") from error
    spark.sparkContext.setLogLevel(settings.log_level)
    register(spark)
    return spark


def session_options(settings: JobSettings, *, is_local: bool) -> dict[str, str]:
    """Return the options of the session; those that the settings name for Spark count more than ours."""
    options = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        # Topics whose names are numbers are topics all the same.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": settings.driver_memory,
        # A stop lets the batch finish; what comes too late must not hang the process.
        "spark.sql.streaming.stopTimeout": "30s",
    }
    if is_local:
        options |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    named = {name if name.startswith("spark.") else f"spark.{name}": value for name, value in settings.spark.items()}
    return options | named


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").is_file()):
        raise SettingsError("Spark needs Java 17 or later: install a JDK, or set JAVA_HOME.")
