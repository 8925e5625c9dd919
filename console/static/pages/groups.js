// All consumer groups.
import { useData } from "../lib/api.js";
import { count } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { BrokerLink, Command, Empty, Field, GroupBadge, GroupLink, lagTime, Loading, Missing, Page, Pager, ProblemBox, ProgressBadge, SearchField, Table, TopicLink, usePages } from "../lib/ui.js";

export default function GroupsPage({ query }) {
  const q = query.get("q") ?? "";
  const sort = query.get("sort") ?? "group_id";
  const state = query.get("state") ?? "";
  const after = query.get("after");
  const asked = useMemo(() => ({ q, sort, state, after, limit: 100 }), [q, sort, state, after]);
  const source = useData("groups", asked, { every: 5000 });
  const pages = usePages(after, (value) => setQuery({ after: value }));
  const data = source.data ?? source.shown;
  return html`<${Page} title="Groups" lead="Who reads what, and how far behind.">
    <div class="toolbar">
      <${SearchField} label="Search groups" value=${q} onSearch=${(text) => setQuery({ q: text, after: null })} />
      <${Field} type="select" className="inline" label="State" value=${state} onInput=${(value) => setQuery({ state: value, after: null })}
        options=${[["", "all states"], ["Stable", "stable"], ["Empty", "empty"], ["PreparingRebalance", "preparing a rebalance"], ["CompletingRebalance", "completing a rebalance"], ["Dead", "dead"]]} />
    </div>
    <${ProblemBox} problem=${source.problem} onRetry=${source.problem?.status === 410 ? pages.onFirst : source.reload} isOld=${Boolean(data)} />
    ${!data && !source.problem && html`<${Loading} />`}
    ${data && html`<${Missing} missing=${data.missing} /><${List} data=${data} q=${q || state} sort=${sort} pages=${pages} />`}
    <${Command} text="ottla group list" />
  <//>`;
}

function List({ data, q, sort, pages }) {
  if (!data.items.length) {
    return q ? html`<${Empty} title="No group matches" />` : html`<${Empty} title="No groups yet" command="ottla topic consume orders --group billing">Consumers that share a group id share the partitions of a topic, and the group remembers how far they have read.<//>`;
  }
  return html`<${Table}
      caption="Groups"
      rows=${data.items}
      rowKey=${(group) => group.group_id}
      sort=${sort}
      onSort=${(next) => setQuery({ sort: next, after: null })}
      columns=${[
        { id: "group", label: "Group", sort: "group_id", isHeader: true, render: (group) => html`<${GroupLink} id=${group.group_id} />` },
        { id: "lag", label: "Lag", align: "right", render: (group) => (group.lag === null ? "–" : html`<strong>${count(group.lag)}</strong>`) },
        { id: "time", label: "Lag in time", align: "right", className: "nowrap", render: (group) => lagTime(group.lag_ms) },
        { id: "progress", label: "Reading", className: "nowrap", render: (group) => html`<${ProgressBadge} progress=${group.progress} note=${group.progress === "stopped" && group.stopped_partitions > 1 ? `in ${count(group.stopped_partitions)} partitions` : ""} />` },
        { id: "state", label: "State", sort: "state", render: (group) => html`<${GroupBadge} state=${group.state} />${group.error ? html` <span class="error-text">${group.error}</span>` : ""}` },
        { id: "members", label: "Members", align: "right", isWide: true, render: (group) => count(group.members) },
        { id: "topics", label: "Topics", render: (group) => html`<span class="list">${group.topics.slice(0, 4).map((each) => html`<${TopicLink} key=${each} name=${each} />`)}${group.topics.length > 4 ? ` and ${group.topics.length - 4} more` : ""}</span>` },
        { id: "type", label: "Protocol", isWide: true, render: (group) => html`${group.type} <span class="dim">${group.protocol_type}</span>` },
        { id: "coordinator", label: "Coordinator", sort: "coordinator", align: "right", isWide: true, render: (group) => html`<${BrokerLink} id=${group.coordinator} />` },
      ]}
    />
    <${Pager} total=${data.total} shown=${data.items.length} next=${data.next} noun="groups" isFirst=${pages.isFirst} onFirst=${pages.onFirst} onBack=${pages.onBack} onNext=${() => pages.onNext(data.next)} />`;
}
