"""A cluster of Spark as processes on this machine: a master, and workers that start executors."""

from __future__ import annotations

import os
import signal
import socket
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark
from tests.kit.guarded_process import GuardedProcess
from tests.kit.waiting import until

from ottla.client.local_cluster.ports import free_port

HOST: Final = "127.0.0.1"
SMALL: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
START_S_MAX: Final = 300
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """A standalone master and its workers; `with` starts and ends them."""

    def __init__(self, folder: Path, workers: int) -> None:
        folder.mkdir()
        self._folder = folder
        self._workers = workers
        self._home = Path(pyspark.__path__[0])
        # Executors have it in their command lines.
        self._mark = f"ottla.test={uuid.uuid4().hex}"
        self._stack = ExitStack()
        self._port = free_port(HOST)
        self.environment = {
            **os.environ,
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_JAVA_OPTS": SMALL,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_CONF_DIR": str(self._configured(folder)),
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def master(self) -> str:
        """The address of the master."""
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            master = self._spawn(stack, "master", "--port", str(self._port))
            assert master.comes_up(self._is_listening, START_S_MAX), self._log("master")
            for number in range(self._workers):
                work = str(self._folder / f"work-{number}")
                options = ("--cores", "1", "--memory", "1g", "--work-dir", work, self.master)
                self._spawn(stack, "worker", *options)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def kill_executor(self) -> None:
        """Kill one of the executors that run, and wait until it is gone."""
        pid = until(self._executors, "an executor")[0]
        os.kill(pid, signal.SIGKILL)
        until(lambda: pid not in self._executors(), "it is gone")

    def _executors(self) -> list[int]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if _EXECUTOR.encode() in command and self._mark.encode() in command:
                found.append(int(folder.name))
        return found

    def _spawn(self, stack: ExitStack, name: str, *options: str) -> GuardedProcess:
        main_class = f"org.apache.spark.deploy.{name}.{name.capitalize()}"
        command = [str(self._home / "bin" / "spark-class"), main_class, "--host", HOST, "--webui-port", "0", *options]
        process = GuardedProcess(command, self._folder / f"{name}.log", self.environment)
        stack.callback(process.end, signal.SIGKILL)
        return process

    def _configured(self, folder: Path) -> Path:
        conf = folder / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions -D{self._mark} {SMALL}\n")
        return conf

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _is_listening(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex((HOST, self._port)) == 0
