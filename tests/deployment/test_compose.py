"""docker-compose.yml and the Dockerfile, as far as that goes without Docker; `make compose-test` tries them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.client.local_cluster.prepare_security import main

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
BROKERS = [name for name in SERVICES if name.startswith("broker-")]
SECURE_BROKERS = [name for name in SERVICES if name.startswith("secure-broker-")]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def default_of(text: str) -> str:
    """Return a value with what its variables are when nobody sets them."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.mark.parametrize("name", [*BROKERS, *SECURE_BROKERS])
def test_a_broker_is_reached_from_inside_and_from_the_host(name: str) -> None:
    """Two listeners; the one for the host is advertised at the port that is published."""
    broker = SERVICES[name]
    advertised = default_of(broker["environment"]["KAFKA_ADVERTISED_LISTENERS"])
    inside, outside = advertised.split(",")
    assert inside == f"INTERNAL://{name}:19092"
    port = outside.removeprefix("EXTERNAL://localhost:")
    assert f"127.0.0.1:{port}:9092" in [default_of(each) for each in broker["ports"]]
    assert broker["environment"]["OTTLA_BOOTSTRAP_SERVERS"] == f"{name}:19092"


@pytest.mark.parametrize("name", BROKERS)
def test_a_broker_keeps_its_data_and_stops_in_good_order(name: str) -> None:
    """A volume of its own, time to hand over, and a ZooKeeper that is healthy first."""
    broker = SERVICES[name]
    assert broker["volumes"] == [f"{name}:/var/lib/ottla"]
    assert int(broker["stop_grace_period"].removesuffix("s")) >= 30
    assert broker["depends_on"] == {"zookeeper": {"condition": "service_healthy"}}


def test_brokers_differ_in_what_must_differ() -> None:
    """Ids and ports."""
    assert len(BROKERS) == 3
    assert len({SERVICES[name]["environment"]["KAFKA_BROKER_ID"] for name in BROKERS}) == 3
    ports = [default_of(port) for service in SERVICES.values() for port in service.get("ports", ())]
    assert len({port.split(":")[1] for port in ports}) == len(ports)
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_secure_brokers_are_a_cluster_of_their_own_that_is_never_open() -> None:
    """With a ZooKeeper of its own, every listener on SASL_SSL, and no secret in the environment."""
    assert len({SERVICES[name]["environment"]["KAFKA_BROKER_ID"] for name in SECURE_BROKERS}) == 3
    for name in SECURE_BROKERS:
        broker = SERVICES[name]
        environment = broker["environment"]
        assert broker["profiles"] == ["secure"]
        assert environment["KAFKA_ZOOKEEPER_CONNECT"] == "secure-zookeeper:2281/ottla"
        assert environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"] == "INTERNAL:SASL_SSL,EXTERNAL:SASL_SSL"
        assert not [variable for variable in environment if "SASL" in variable or "PASSWORD" in variable]
        assert broker["volumes"] == [f"{name}:/var/lib/ottla", "security:/etc/ottla/security:ro"]


def test_the_files_of_secure_brokers_are_made_first_and_for_their_addresses() -> None:
    """A certificate for other names, or files with other ports, would be of no use."""
    command = [default_of(argument) for argument in SERVICES["secure-files"]["command"]]
    told = dict(argument.removeprefix("--").split("=", 1) for argument in command if "side=" in argument)
    advertised = [
        default_of(SERVICES[name]["environment"]["KAFKA_ADVERTISED_LISTENERS"]).split(",") for name in SECURE_BROKERS
    ]
    inside, outside = (",".join(each.split("://")[1] for each in side) for side in zip(*advertised, strict=True))
    assert told == {"inside": inside, "outside": outside}
    for name in SECURE_BROKERS:
        made = SERVICES[name]["depends_on"]["secure-files"]
        assert made == {"condition": "service_completed_successfully"}


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_more_rights_than_it_needs(name: str) -> None:
    """No capabilities, none to be gained, and nothing to write to but volumes; ZooKeeper's image changes its user."""
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    is_zookeeper = "zookeeper" in service["image"]
    assert service.get("cap_add") == (["CHOWN", "SETGID", "SETUID"] if is_zookeeper else None)
    assert service.get("read_only", False) == (not is_zookeeper)


def test_grafana_has_a_password_that_is_made_for_it() -> None:
    """Not the one that everybody knows."""
    grafana, maker = SERVICES["grafana"], SERVICES["grafana-password"]
    path = grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert path in maker["entrypoint"][-1]
    assert grafana["depends_on"]["grafana-password"] == {"condition": "service_completed_successfully"}
    assert f"grafana-password:{path.rpartition('/')[0]}:ro" in grafana["volumes"]


def test_every_image_can_be_pinned_to_a_digest() -> None:
    """By a variable, or a build argument."""
    assert all(re.fullmatch(r"\$\{[A-Z_]+_IMAGE:-[^}]+\}", service["image"]) for service in SERVICES.values())
    bases = {line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("FROM ")}
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, re.MULTILINE))
    assert bases - stages == {"${PYTHON_IMAGE}"}


def test_the_zookeeper_of_secure_brokers_reads_what_is_made_for_it(tmp_path: Path) -> None:
    """Its options name files that are there, and its port is that of the brokers."""
    command = [default_of(argument) for argument in SERVICES["secure-files"]["command"]]
    folder, conf = tmp_path / "security", tmp_path / "conf"
    folder.mkdir()
    conf.mkdir()
    arguments = [str(folder), *(each for each in command[1:] if "zookeeper-folder" not in each)]
    assert main([*arguments, f"--zookeeper-folder={conf}"]) == 0
    options = dict(line.split("=", 1) for line in (conf / "zoo.cfg").read_text().splitlines())
    zookeeper = SERVICES["secure-zookeeper"]
    connect = SERVICES[SECURE_BROKERS[0]]["environment"]["KAFKA_ZOOKEEPER_CONNECT"]
    assert connect == f"secure-zookeeper:{options['secureClientPort']}/ottla"
    assert options["clientPortAddress"] == "127.0.0.1"
    login = zookeeper["environment"]["JAVA_TOOL_OPTIONS"].rpartition("=")[2]
    for path in (options["ssl.keyStore.location"], login):
        assert (conf / path.removeprefix("/conf/")).read_text()
    broker = (folder / "broker.properties").read_text()
    (password,) = set(re.findall(r'DigestLoginModule required username="broker" password="([^"]+)"', broker))
    assert f'user_broker="{password}"' in (conf / "zookeeper.jaas").read_text()
    assert "zookeeper.set.acl=true" in broker


def test_what_is_mounted_exists() -> None:
    """Folders of this repository, and volumes that are declared."""
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (ROOT / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"]


def test_the_cluster_runs_without_the_profiles() -> None:
    """Spark, Prometheus and Grafana come when they are asked for."""
    plain = {name for name, service in SERVICES.items() if "profiles" not in service}
    assert plain == {"zookeeper", "console", *BROKERS}


@pytest.mark.parametrize("name", ["console", "secure-console"])
def test_a_console_is_reached_from_this_host_alone(name: str) -> None:
    """At the address that it takes for its own; the secure one has no password, and asks for those of its users."""
    service = SERVICES[name]
    (port,) = (default_of(each) for each in service["ports"])
    words = [default_of(str(each)) for each in service["command"]]
    text = " ".join(words).replace("=", " ")
    assert f"--public-url http://localhost:{port.split(':')[1]}" in text
    assert port.startswith("127.0.0.1:")
    assert ("--open" in words) == (name == "console")
    assert ("sasl.mechanism PLAIN" in text) == (name == "secure-console")
    assert "password" not in text
    brokers = SECURE_BROKERS if name == "secure-console" else BROKERS
    assert service["environment"] == {"OTTLA_BOOTSTRAP_SERVERS": ",".join(f"{each}:19092" for each in brokers)}
    assert {profile for service in SERVICES.values() for profile in service.get("profiles", ())} >= {"monitoring"}


def test_prometheus_asks_services_that_exist() -> None:
    """All brokers, at the port that the image serves metrics at."""
    config = yaml.safe_load((ROOT / "config/prometheus/prometheus.yml").read_text())
    targets = {
        target for job in config["scrape_configs"] for static in job["static_configs"] for target in static["targets"]
    }
    assert {f"{name}:9644" for name in BROKERS} <= targets
    assert {target.split(":")[0] for target in targets} <= set(SERVICES)
    assert "ottla.http.listener=0.0.0.0:9644" in (ROOT / "config/container.properties").read_text()


def test_the_image_has_the_version_of_the_project() -> None:
    """And does not run as root."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert set(re.findall(r'image\.version="([^"]*)"', DOCKERFILE)) == {version}
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)
    for name in ("broker", "pipeline"):
        (stage,) = (stage for stage in stages if re.match(rf"\S+ AS {name}\n", stage))
        assert "\nUSER ottla\n" in stage


def test_compose_test_says_what_it_needs() -> None:
    """Where there is no Docker."""
    script = [sys.executable, str(ROOT / "scripts" / "compose_test.py")]
    done = subprocess.run(script, env={"PATH": ""}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("This needs Docker")
