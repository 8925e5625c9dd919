"""`ottla profile`, and which cluster commands then talk to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.client.cli.conftest import Ottla
from tests.kit.broker_process import BrokerProcess

from ottla.client.cli.terminal.errors import CommandError
from ottla.client.cli.terminal.profiles import Profiles, read_profiles, write_profiles
from ottla.client.cli.terminal.target import Target
from ottla.client.net.settings import ClientSettings


def test_profiles_are_added_used_shown_and_removed(ottla: Ottla, config_home: Path) -> None:
    """The first one is used at once; the file is for its owner alone."""
    added = ottla("profile", "add", "local")
    assert (added.code, added.rows) == (0, [["local", "yes", "localhost:9092"]])
    secret = ("-X", "security.protocol=SASL_SSL", "-X", "sasl.username=me", "-X", "sasl.password=hidden-word")
    assert ottla("profile", "add", "prod", "-b", "one:1,two:2", *secret).code == 0
    assert ottla("profile", "list").rows == [["local", "yes", "localhost:9092"], ["prod", "no", "one:1,two:2"]]
    assert (config_home / "ottla" / "profiles.json").stat().st_mode & 0o777 == 0o600

    assert ottla("profile", "use", "prod").rows == [["prod", "yes", "one:1,two:2"]]
    assert ["bootstrap.servers", "one:1,two:2"] in ottla("profile", "show").rows
    (item,) = ottla("profile", "show", "prod", "--format", "json").items
    assert (item["name"], item["is_current"], item["options"]["sasl.username"]) == ("prod", True, "me")
    assert item["options"]["sasl.password"] == "********"
    assert [each["name"] for each in ottla("profile", "list", "--format", "json").items] == ["local", "prod"]

    assert ottla("profile", "remove", "prod").rows == [["prod", "removed"]]
    assert ottla("profile", "remove", "local", "--format", "json").items == [{"name": "local"}]
    assert "No profiles yet" in ottla("profile", "list").err


def test_commands_use_the_profile_unless_told_otherwise(
    ottla: Ottla, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment counts for more, and OTTLA_PROFILE chooses another profile."""
    ottla("profile", "add", "here", "-b", broker.bootstrap)
    ottla("profile", "add", "nowhere", "-b", "127.0.0.1:1")
    assert ottla("cluster", "controller", bootstrap=None).code == 0
    monkeypatch.setenv("OTTLA_PROFILE", "nowhere")
    assert ottla("cluster", "controller", "--timeout", "1", bootstrap=None).code == 1
    assert ottla("cluster", "controller").code == 0
    monkeypatch.setenv("OTTLA_PROFILE", "no-such")
    missing = ottla("cluster", "controller", bootstrap=None)
    assert (missing.code, "There is no profile 'no-such'; there are: here, nowhere." in missing.err) == (1, True)


def test_the_password_of_a_profile_goes_to_no_other_cluster() -> None:
    """An address from elsewhere leaves the profile out as a whole; other options count for more than its own."""
    options = {"bootstrap.servers": "prod:1", "client.id": "profile", "sasl.password": "word"}
    write_profiles(Profiles("prod", {"prod": options}))
    used = Target(overrides=("client.id=x",)).settings(ClientSettings)
    assert (used["bootstrap_servers"], used["client_id"], used["sasl_plain_password"]) == ("prod:1", "x", "word")
    assert "sasl_plain_password" not in Target("other:1").settings(ClientSettings)
    assert "sasl_plain_password" not in Target(overrides=("bootstrap.servers=o:1",)).settings(ClientSettings)


def test_what_makes_no_sense_is_refused(ottla: Ottla) -> None:
    """With 2 where the command line is wrong, 1 where there is no such profile."""
    assert ottla("profile", "add", "a b").code == 2
    assert ottla("profile", "add", "a", "-b", "x:y:z").code == 2
    assert ottla("profile", "add", "a", "-X", "no.such=1").code == 2
    assert ottla("profile", "use", "a").code == 1
    assert ottla("profile", "remove", "a").code == 1
    assert ottla("profile", "show").code == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"profiles": 1}', '{"profiles": {"a": {"b": 1}}}', '{"current": "x", "profiles": {}}', "\xff"],
)
def test_a_file_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    """With a typed error, whatever is in it."""
    file = tmp_path / "profiles.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(CommandError, match="Fix it, or delete it"):
        read_profiles(file)


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Such as one below a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="Cannot write"):
        write_profiles(Profiles(), tmp_path / "file" / "profiles.json")
