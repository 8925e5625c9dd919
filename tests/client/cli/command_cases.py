"""Each command of `ottla` that prints a result: a line that works, what it prints, and a line that fails.

In braces stands what `Stage` of test_every_command.py provides: a topic with records, a group without members, files.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Case(NamedTuple):
    """One command, without its name: `headings` begin its table, `fields` are those of each object as data."""

    works: str
    headings: str
    fields: str
    fails: str
    because: str
    fails_with: int = 1


_OUTCOME: Final = "resource_type resource_name error"
_OPTION: Final = "name value source is_default is_sensitive is_read_only documentation"
_MEASURED: Final = "topic records bytes seconds records_per_s mb_per_s latency_ms"
_RECORD: Final = "topic partition offset timestamp key value headers"
_BATCH: Final = (
    "position base_offset last_offset records size_bytes codec max_timestamp leader_epoch producer_id producer_epoch "
    "base_sequence is_transactional is_control"
)
_PROFILE: Final = "name is_current options"
_CHECKED: Final = "status exit_code message"
_NOBODY: Final = "-b 127.0.0.1:1 --timeout 1"
_NOT_REACHED: Final = "No broker can be reached"
_UNKNOWN_TOPIC: Final = "`ottla topic list` shows"
_UNKNOWN_GROUP: Final = "`ottla group list` shows"
_UNKNOWN_USER: Final = "`ottla user list` shows"
_UNKNOWN_TOKEN: Final = "`ottla token list` shows"
_TOKENS_NEED_A_LOGIN: Final = "Tokens need a connection that was authenticated"
_TOKEN_HEADINGS: Final = "TOKEN OWNER RENEWERS EXPIRES"
_TOKEN: Final = "token_id owner requester renewers issue_timestamp expiry_timestamp max_timestamp hmac"
_RIGHT_HEADINGS: Final = "PRINCIPAL HOST PERMISSION"
_RIGHT: Final = "principal host operation permission_type resource_type resource_name pattern_type"

CASES: Final[dict[str, Case]] = {
    "cluster info": Case(
        "", "cluster id:", "cluster_id controller_id brokers topics partitions", _NOBODY, _NOT_REACHED
    ),
    "cluster brokers": Case(
        "",
        "ID HOST PORT",
        "broker_id host port rack is_controller leaders replicas out_of_sync",
        _NOBODY,
        _NOT_REACHED,
    ),
    "cluster controller": Case("", "ID HOST PORT", "broker_id host port rack", _NOBODY, _NOT_REACHED),
    "cluster health": Case(
        "",
        "cluster: healthy",
        "is_healthy cluster_id controller_id brokers partitions missing_brokers offline under_replicated "
        "without_zookeeper",
        _NOBODY,
        _NOT_REACHED,
    ),
    "cluster api-versions": Case(
        "", "KEY API MIN MAX", "api_key name version_min version_max", "--broker 9", "There is no broker 9"
    ),
    "broker safe-to-stop": Case(
        "1",
        "broker 1: NOT safe to stop",
        "broker_id is_safe reasons notes is_controller unavailable below_min_isr leaders_to_move brokers_down "
        "catching_up groups transactional_ids",
        "9",
        "There is no broker 9",
    ),
    "cluster balance": Case(
        "--dry-run",
        "BROKER LEADERS REPLICAS",
        "is_dry_run copied_bytes copied_replicas leader_changes moves brokers",
        "--status --cancel",
        "not both",
        2,
    ),
    "topic list": Case(
        "--regex {topic}",
        "TOPIC PARTITIONS",
        "name topic_id is_internal num_partitions replication_factor",
        "--regex (",
        "(",
        2,
    ),
    "topic create": Case(
        "{new} -p 2",
        "TOPIC STATUS",
        "name topic_id num_partitions replication_factor error",
        "{topic}",
        "`ottla topic describe` shows it",
    ),
    "topic describe": Case(
        "{topic}", "topic:", "name topic_id is_internal partitions error configs", "not-there", _UNKNOWN_TOPIC
    ),
    "topic alter": Case(
        "{topic} -c retention.ms=5",
        "TOPIC STATUS",
        _OUTCOME,
        "{topic} -c retention.ms=soon",
        "`ottla config list` shows",
    ),
    "topic delete": Case("{topic} --yes", "TOPIC STATUS", "name error", "{topic}", "repeat the command with --yes", 2),
    "topic deleted": Case(
        "{some_deleted}",
        "TOPIC ID PARTITIONS DELETED KEPT UNTIL STATE",
        "name topic_id num_partitions deleted_ms kept_until_ms given_up_by error",
        _NOBODY,
        _NOT_REACHED,
    ),
    "topic undelete": Case(
        "{deleted}", "TOPIC STATUS", "name topic_id error", "not-there", "`ottla topic deleted` lists those"
    ),
    "topic add-partitions": Case("{topic} --total 4", "TOPIC STATUS", "name error", "{topic} --total 1", "partitions"),
    "topic trim": Case(
        "{topic} -o 1 -p 0 --yes",
        "PARTITION STATUS",
        "topic partition low_watermark error",
        "not-there -o 1 --yes",
        _UNKNOWN_TOPIC,
    ),
    "topic offsets": Case(
        "{topic}", "TOPIC PARTITION START END", "topic partition start end records", "not-there", _UNKNOWN_TOPIC
    ),
    "topic produce": Case("{topic} one two", "", "topic partition offset timestamp", "no/topic one", "no/topic"),
    "topic consume": Case("{topic} --exit", "a b c", _RECORD, "not-there --exit", _UNKNOWN_TOPIC),
    "topic tail": Case("{topic} -n 3", "a b c", _RECORD, "not-there", _UNKNOWN_TOPIC),
    "group list": Case("{groups}", "GROUP", "group_id protocol_type state type coordinator", _NOBODY, _NOT_REACHED),
    "group describe": Case(
        "{group}",
        "group:",
        "group_id type state protocol_type assignor coordinator members group_epoch error total_lag partitions",
        "not-there",
        _UNKNOWN_GROUP,
    ),
    "group lag": Case(
        "{group}",
        "TOPIC PARTITION CURRENT-OFFSET",
        "group_id topic partition current_offset log_end_offset lag member_id client_host client_id lag_ms "
        "progress stalled_ms",
        "not-there",
        _UNKNOWN_GROUP,
    ),
    "group members": Case(
        "{member}",
        "CONSUMER-ID",
        "member_id instance_id client_id client_host assignment rack member_epoch subscribed_topics target_assignment",
        "not-there",
        _UNKNOWN_GROUP,
    ),
    "group seek": Case(
        "{group} --to start --topic {topic} --yes",
        "TOPIC PARTITION BEFORE AFTER",
        "topic partition before after wanted error",
        "{group} --to end",
        "--yes",
        2,
    ),
    "group delete-offsets": Case(
        "{group} --topic {topic} --yes",
        "PARTITION STATUS",
        "topic partition error",
        "{group} --topic not-there --yes",
        "has committed nothing there",
    ),
    "group delete": Case("{group} --yes", "GROUP STATUS", "group_id error", "not-there --yes", _UNKNOWN_GROUP),
    "group timeline": Case(
        "{member}", "BEGAN", "cause began_ms join_ms sync_ms generation members", "not-there", "not-there"
    ),
    "config list": Case("topic {topic}", "OPTION", _OPTION, "topic not-there", _UNKNOWN_TOPIC),
    "config get": Case("topic {topic} retention.ms", "OPTION", _OPTION, "topic {topic} retention", "retention"),
    "config set": Case(
        "topic {topic} retention.ms=5", "TOPIC STATUS", _OUTCOME, "topic {topic} retention.ms", "KEY=VALUE", 2
    ),
    "config unset": Case(
        "topic {topic} retention.ms", "TOPIC STATUS", _OUTCOME, "topic not-there retention.ms", _UNKNOWN_TOPIC
    ),
    "user list": Case("{user}", "USER MECHANISM ITERATIONS", "user credentials error", "not-there", _UNKNOWN_USER),
    "user create": Case(
        "{new} --password-file {password}",
        "USER STATUS",
        "user error",
        "{new}",
        "There is no terminal to ask for the password",
        2,
    ),
    "user update": Case(
        "{user} --password-file {password}", "USER STATUS", "user error", "not-there", "There is no user not-there"
    ),
    "user delete": Case("{user} --yes", "USER STATUS", "user error", "not-there --yes", _UNKNOWN_USER),
    "token list": Case(
        "-b {guarded} {tokens} {some_token} --owner admin", _TOKEN_HEADINGS, _TOKEN, "", _TOKENS_NEED_A_LOGIN
    ),
    "token create": Case("-b {guarded} {tokens}", _TOKEN_HEADINGS, _TOKEN, "", _TOKENS_NEED_A_LOGIN),
    "token renew": Case(
        "-b {guarded} {tokens} {token}",
        "TOKEN EXPIRES",
        "token_id expiry_timestamp",
        "-b {guarded} {tokens} not-there",
        _UNKNOWN_TOKEN,
    ),
    "token expire": Case(
        "-b {guarded} {tokens} {token} --yes",
        "TOKEN EXPIRES",
        "token_id expiry_timestamp",
        "-b {guarded} {tokens} not-there --yes",
        _UNKNOWN_TOKEN,
    ),
    "acl list": Case("-b {acls} --principal {allowed}", _RIGHT_HEADINGS, _RIGHT, "", "authorizer.class.name"),
    "acl create": Case(
        "-b {acls} --principal alice --producer --topic {new}",
        _RIGHT_HEADINGS,
        f"{_RIGHT} error",
        "--producer --topic t",
        "--principal",
        2,
    ),
    "acl delete": Case(
        "-b {acls} --principal {allowed} --yes", _RIGHT_HEADINGS, f"{_RIGHT} error", "--yes", "Which ACLs?", 2
    ),
    "quota list": Case("--user {limited}", "USER CLIENT-ID IP", "entity quotas", "--default group", "--default", 2),
    "quota alter": Case(
        "--user {new} --produce 1000000000",
        "ENTITY STATUS",
        "entity error",
        "--user u --produce 0.5",
        "producer_byte_rate",
    ),
    "partition leaders": Case(
        "--topic {topic}",
        "TOPIC PARTITION LEADER",
        "topic partition leader preferred replicas isr",
        "--topic not-there",
        _UNKNOWN_TOPIC,
    ),
    "partition elect": Case(
        "--topic {topic}", "PARTITION STATUS", "topic partition is_elected error", "--topic not-there", _UNKNOWN_TOPIC
    ),
    "partition reassign plan": Case(
        "--topic {topic} --brokers 1",
        '{"version":',
        "version partitions",
        "--topic {topic} --brokers 9",
        "not alive: 9",
    ),
    "partition reassign execute": Case(
        "{plan} --yes", "PARTITION STATUS", "topic partition error", "missing.json --yes", "missing.json"
    ),
    "partition reassign verify": Case(
        "{plan}", "TOPIC PARTITION STATE", "topic partition state wanted replicas", "missing.json", "missing.json"
    ),
    "partition reassign cancel": Case(
        "{plan} --yes", "", "topic partition error", "missing.json --yes", "missing.json"
    ),
    "log dump": Case("{segment}", "POSITION BASE-OFFSET", _BATCH, "missing.log", "There is no file missing.log"),
    "log verify": Case(
        "{segment}",
        "FILE",
        "file size_bytes batches records first_offset last_offset unused_bytes problems",
        "missing.log",
        "missing.log",
    ),
    "log move": Case(
        "{topic} {log_dir} --broker 1 --yes",
        "PARTITION STATUS",
        "topic partition broker_id error",
        "{topic} /nowhere --broker 1 --yes",
        "has no log directory of this name",
    ),
    "log dirs": Case("", "BROKER", "broker_id path total_bytes usable_bytes replicas error", _NOBODY, _NOT_REACHED),
    "check health": Case("", "OK:", _CHECKED, _NOBODY, "", 2),
    "check lag": Case("{group}", "OK:", _CHECKED, "not-there", "", 3),
    "check topic": Case("{topic}", "OK:", _CHECKED, "not-there", "", 2),
    "doctor": Case("", "STATUS CHECK FOUND", "status check found advice change", _NOBODY, "", 2),
    "certify": Case(
        "--only frames/http",
        "software:",
        "software cluster_id subject check holds result expected seen reason seconds",
        _NOBODY,
        _NOT_REACHED,
    ),
    "profile add": Case("{new} -b broker:1", "PROFILE CURRENT", _PROFILE, "{new} -b :::", "", 2),
    "profile use": Case("{profile}", "PROFILE CURRENT", _PROFILE, "not-there", "not-there"),
    "profile list": Case("{profiles}", "PROFILE CURRENT", _PROFILE, "--unknown", "--unknown", 2),
    "profile show": Case("{profile}", "OPTION VALUE", _PROFILE, "not-there", "not-there"),
    "profile remove": Case("{profile}", "PROFILE STATUS", "name", "not-there", "not-there"),
    "apply": Case(
        "-f {file}", "TOPIC ACTION CHANGES STATUS", "topic action changes error status", "-f missing.yaml", "missing", 2
    ),
    "mirror": Case(
        "--from {here} --to {acls} --topics {topic} --groups none --once",
        "source and destination agree: 1 topic,",
        "agree topics partitions records groups acls differences notes",
        "--from {here} --to {here} --once",
        "same cluster",
    ),
    "bench produce": Case("{topic} -n 100", "RECORDS SECONDS", _MEASURED, "no/topic -n 1 --timeout 1", "no/topic"),
    "bench consume": Case("{topic} -n 3", "RECORDS SECONDS", _MEASURED, "no/topic -n 1 --timeout 1", "no/topic"),
    "bench e2e": Case(
        "{topic} -n 20 --rate 1000", "RECORDS SECONDS", _MEASURED, "no/topic -n 1 --timeout 1", "no/topic"
    ),
}
