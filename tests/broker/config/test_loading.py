"""A config is loaded from a file, the environment and overrides, and mistakes are reported with their place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.config import ConfigError, ConfigSource, effective_config, load_broker_config
from ottla.broker.config.environment import settings_from_environment
from ottla.broker.config.loading import FILE_BYTES_MAX

ROOT = Path(__file__).parents[3]
ZOOKEEPER = "zookeeper.connect=localhost:2181"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Give the path of a file to write."""
    return tmp_path / "server.properties"


def test_an_override_counts_before_the_environment_before_the_file_before_the_default(file: Path) -> None:
    """All three are static settings; the place tells them apart."""
    file.write_text(f"{ZOOKEEPER}\nnum.io.threads=2\nnum.network.threads=2\nbackground.threads=2\n")
    config = load_broker_config(
        file, {"KAFKA_NUM_IO_THREADS": "3", "KAFKA_NUM_NETWORK_THREADS": "3"}, ["num.io.threads=4"]
    )

    assert (config.num_io_threads, config.num_network_threads, config.background_threads) == (4, 3, 2)
    assert config.num_recovery_threads_per_data_dir == 1
    assert config.origin(type(config).num_io_threads) == "--override"
    assert config.origin(type(config).num_network_threads) == "environment KAFKA_NUM_NETWORK_THREADS"
    assert config.origin(type(config).background_threads) == f"{file} line 4"
    assert config.origin(type(config).num_recovery_threads_per_data_dir) == "default"
    assert config.resolve("num.io.threads").source is ConfigSource.STATIC_BROKER


def test_a_file_has_javas_format(file: Path) -> None:
    """Comments, continued lines, escapes, other separators and Latin-1 are understood."""
    file.write_bytes(
        b"# comment\n! comment\nlog.dirs : /a,\\\n   /b\nbroker.rack=r\\u00e4ck\n\n"
        b"super.users User:J\xfcrgen\nzookeeper.connect=zk\\:2181\n"
    )
    config = load_broker_config(file)

    assert config.log_dirs == (Path("/a"), Path("/b"))
    assert config.broker_rack == "räck"
    assert config.super_users == ("User:Jürgen",)


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_wrong_value_is_reported_with_its_line(file: Path, line_end: str) -> None:
    """Comments and continued lines count, whatever ends a line."""
    lines = ["# comment", "", "log.dirs=/a,\\", "  /b", "num.io.threads=none", ZOOKEEPER]
    file.write_bytes(line_end.join(lines).encode())

    with pytest.raises(ConfigError) as caught:
        load_broker_config(file)
    assert str(caught.value) == f'num.io.threads = "none" ({file} line 5): expected type int, at least 1'


def test_all_problems_are_reported_at_once(file: Path) -> None:
    """Those of the file, of the environment, of overrides, between options, and what is missing."""
    file.write_text("num.io.threads=0\nreplica.lag.time.max.ms=1\n")

    with pytest.raises(ConfigError) as caught:
        load_broker_config(file, {"KAFKA_BROKER_ID": "one"}, ["log.dirs"])
    assert str(caught.value).splitlines() == [
        '--override "log.dirs": expected key=value',
        f'num.io.threads = "0" ({file} line 1): expected type int, at least 1',
        'broker.id = "one" (environment KAFKA_BROKER_ID): expected type int, at least -1',
        f"replica.fetch.wait.max.ms = 500 (default) must be at most replica.lag.time.max.ms = 1 ({file} line 2)",
        "zookeeper.connect is not set: a broker needs ZooKeeper, for example zookeeper.connect=localhost:2181",
    ]


def test_a_value_of_an_override_may_hold_an_equals_sign() -> None:
    """Only the first one separates."""
    config = load_broker_config(None, {}, [ZOOKEEPER, "super.users=User:CN=a"])

    assert config.super_users == ("User:CN=a",)


def test_a_key_that_is_set_twice_is_warned_of(file: Path) -> None:
    """The last one counts, as in Java."""
    file.write_text(f"{ZOOKEEPER}\nbroker.id=1\nbroker.id=2\n")
    config = load_broker_config(file)

    assert config.broker_id == 2
    assert config.warnings == (f"broker.id ({file} line 3) replaces the value in {file} line 2",)


def test_a_file_with_secrets_that_all_can_read_is_warned_of(file: Path) -> None:
    """The names are told, not the values."""
    file.write_text(f"{ZOOKEEPER}\nssl.key.password=hunter2\nlistener.name.plaintext.plain.sasl.jaas.config=x\n")
    file.chmod(0o644)
    secrets = "listener.name.plaintext.plain.sasl.jaas.config, ssl.key.password"

    assert load_broker_config(file).warnings == (f"{file} can be read by all users and contains {secrets}",)
    file.chmod(0o640)
    assert load_broker_config(file).warnings == ()


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path, file: Path) -> None:
    """It is missing, a directory, too large, or has a broken escape."""
    with pytest.raises(ConfigError, match="No such file"):
        load_broker_config(file)
    with pytest.raises(ConfigError, match="directory"):
        load_broker_config(tmp_path)
    file.write_text("broker.id=1\nbroker.rack=\\u12\n")
    with pytest.raises(ConfigError, match=r"line 2: .*is not \\uXXXX"):
        load_broker_config(file)
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="larger than 1048576 bytes"):
        load_broker_config(file)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_CFG_LOG_SEGMENT_BYTES", "log.segment.bytes"),
        ("KAFKA_OTTLA_HTTP_LISTENER", "ottla.http.listener"),
        ("KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET", "zookeeper.clientcnxnsocket"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SSL_CLIENT_AUTH", "listener.name.sasl_ssl.ssl.client.auth"),
        ("KAFKA_LISTENER_NAME_A_SCRAM___SHA___256_SASL_JAAS_CONFIG", "listener.name.a.scram-sha-256.sasl.jaas.config"),
        ("KAFKA_LISTENER_NAME_A_SCRAM__SHA__256_SASL_JAAS_CONFIG", "listener.name.a.scram-sha-256.sasl.jaas.config"),
        ("KAFKA_LISTENER_NAME_SASL___SSL_SSL_CLIENT_AUTH", "listener.name.sasl-ssl.ssl.client.auth"),
        ("KAFKA_UNKNOWN__OPTION", "unknown_option"),
    ],
)
def test_a_variable_stands_for_an_option(variable: str, name: str) -> None:
    """Apache's escapes count, and Confluent's where only they give a known name."""
    settings = settings_from_environment({variable: "v"})

    assert {key: (setting.text, setting.origin) for key, setting in settings.items()} == {
        name: ("v", f"environment {variable}")
    }


@pytest.mark.parametrize(
    "variable",
    [
        "KAFKA_OPTS",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_PORT",
        "KAFKA_VERSION",
        "KAFKA_HOME",
        "KAFKA_PORT",
        "KAFKA_PORT_9092_TCP_ADDR",
        "KAFKA_SERVICE_HOST",
        "KAFKAESQUE",
        "PATH",
    ],
)
def test_other_variables_are_not_options(variable: str) -> None:
    """Those of scripts, images and Kubernetes are left alone."""
    assert settings_from_environment({variable: "v"}) == {}


def test_the_plain_prefix_counts_before_its_alias() -> None:
    """`KAFKA_X` and `KAFKA_CFG_X` may both be set."""
    settings = settings_from_environment({"KAFKA_CFG_BROKER_ID": "1", "KAFKA_BROKER_ID": "2"})

    assert settings["broker.id"].text == "2"


def test_the_effective_config_hides_secrets() -> None:
    """Every option stands on its line with its place, options of one listener too."""
    config = load_broker_config(
        None, {"KAFKA_SSL_KEY_PASSWORD": "hunter2"}, [ZOOKEEPER, "listener.name.plaintext.max.connections=5"]
    )
    lines = effective_config(config).splitlines()

    assert "ssl.key.password = [hidden]  (environment KAFKA_SSL_KEY_PASSWORD)" in lines
    assert "listener.name.plaintext.max.connections = 5  (--override)" in lines
    assert "zookeeper.connect = localhost:2181  (--override)" in lines
    assert "log.retention.ms = 604800000" in lines
    assert "broker.rack = null" in lines
    assert lines == sorted(lines, key=lambda line: line.partition(" ")[0])
    assert "hunter2" not in "".join(lines)


def test_the_example_loads_without_a_warning() -> None:
    """`config/server.properties` is a file to start from."""
    config = load_broker_config(ROOT / "config" / "server.properties")

    assert config.warnings == ()
    assert config.without_effect == ()
    assert config.broker_id == 1
    assert str(config.zookeeper) == "localhost:2181"


def test_importing_the_config_stays_light() -> None:
    """The parser of files and what suggests names are loaded on demand, network code never."""
    heavy = "{'javaproperties', 'difflib', 'asyncio', 'construct', 'kazoo', 'ssl', 'socket'}"
    program = f"import sys, ottla.broker.config; print(sorted({heavy} & set(sys.modules)))"

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout == "[]\n"
