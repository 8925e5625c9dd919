"""The table of all routes. Dispatch, `openapi.json` and docs/CONSOLE_API.md are made from it."""

from __future__ import annotations

from typing import Final

from ottla.console.api.brokers import list_brokers, show_broker
from ottla.console.api.doctor import run_doctor
from ottla.console.api.group_changes import delete_group, seek_group
from ottla.console.api.groups import list_groups, show_group
from ottla.console.api.inside import list_clients, list_events, list_requests, list_segments
from ottla.console.api.live import watch_cluster
from ottla.console.api.options import change_options, list_options
from ottla.console.api.overview import list_partitions, show_overview
from ottla.console.api.reassignments import cancel_moves, list_reassignments, move_partitions
from ottla.console.api.record_changes import redrive_topic, resend_record, write_record
from ottla.console.api.records import export_records, read_records
from ottla.console.api.search import search
from ottla.console.api.security import (
    change_quotas,
    create_acls,
    delete_acls,
    delete_user,
    explain_acls,
    list_acls,
    list_quotas,
    list_users,
    set_user,
)
from ottla.console.api.session import log_in, log_out, show_session
from ottla.console.api.topic_changes import add_partitions, create_topic, delete_topic, elect_leaders, trim_topic
from ottla.console.api.topics import list_topics, show_topic
from ottla.console.api.transactions import (
    abort_transaction,
    fence_producer,
    list_open_transactions,
    list_transactions,
)
from ottla.console.web.route import Route

ROUTES: Final = (
    Route("GET", "/session", show_session, is_public=True),
    Route("POST", "/session", log_in, is_public=True),
    Route("DELETE", "/session", log_out, is_public=True),
    Route("GET", "/overview", show_overview),
    Route("GET", "/partitions", list_partitions),
    Route("GET", "/events", watch_cluster, stream="sse"),
    Route("GET", "/timeline", list_events),
    Route("GET", "/doctor", run_doctor),
    Route("GET", "/search", search),
    Route("GET", "/topics", list_topics),
    Route("POST", "/topics", create_topic),
    Route("GET", "/topics/{topic}", show_topic),
    Route("DELETE", "/topics/{topic}", delete_topic),
    Route("POST", "/topics/{topic}/partitions", add_partitions),
    Route("POST", "/topics/{topic}/trim", trim_topic),
    Route("GET", "/topics/{topic}/partitions/{partition}/segments", list_segments),
    Route("GET", "/topics/{topic}/records", read_records, stream="ndjson", shows_records=True),
    Route("POST", "/topics/{topic}/records", write_record),
    Route("GET", "/topics/{topic}/export", export_records, stream="ndjson", shows_records=True),
    Route("POST", "/topics/{topic}/resend", resend_record),
    Route("POST", "/topics/{topic}/redrive", redrive_topic),
    Route("GET", "/groups", list_groups),
    Route("GET", "/groups/{group}", show_group),
    Route("DELETE", "/groups/{group}", delete_group),
    Route("POST", "/groups/{group}/seek", seek_group),
    Route("GET", "/brokers", list_brokers),
    Route("GET", "/brokers/{broker_id}", show_broker),
    Route("POST", "/elections", elect_leaders),
    Route("GET", "/reassignments", list_reassignments),
    Route("POST", "/reassignments", move_partitions),
    Route("DELETE", "/reassignments", cancel_moves),
    Route("GET", "/clients", list_clients),
    Route("GET", "/requests", list_requests),
    Route("GET", "/options/{kind}/{name}", list_options),
    Route("PATCH", "/options/{kind}/{name}", change_options),
    Route("GET", "/transactions", list_transactions),
    Route("GET", "/transactions/open", list_open_transactions),
    Route("POST", "/transactions/abort", abort_transaction),
    Route("POST", "/transactions/fence", fence_producer),
    Route("GET", "/users", list_users),
    Route("POST", "/users", set_user),
    Route("DELETE", "/users/{user}", delete_user),
    Route("GET", "/acls", list_acls),
    Route("POST", "/acls", create_acls),
    Route("DELETE", "/acls", delete_acls),
    Route("GET", "/acls/explain", explain_acls),
    Route("GET", "/quotas", list_quotas),
    Route("PATCH", "/quotas", change_quotas),
)
