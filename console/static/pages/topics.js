// All topics.
import { path, useData } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { bytes, bytesPerSecond, count, perSecond } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { go, setQuery, to } from "../lib/router.js";
import { Command, Empty, Field, GroupLink, Loading, Missing, Page, Pager, ProblemBox, SearchField, StateBadge, Table, Time, TopicLink, usePages, Badge } from "../lib/ui.js";

const LIMIT = 100;

export default function TopicsPage({ query }) {
  const q = query.get("q") ?? "";
  const sort = query.get("sort") ?? "name";
  const after = query.get("after");
  const hasInternal = query.has("internal");
  const asked = useMemo(() => ({ q, sort, after, internal: hasInternal, limit: LIMIT }), [q, sort, after, hasInternal]);
  const source = useData("topics", asked, { every: 5000 });
  const pages = usePages(after, (value) => setQuery({ after: value }));
  const data = source.data ?? source.shown;
  return html`<${Page} title="Topics" actions=${html`<${ChangeButton} kind="primary" spec=${() => creation(source.reload)}>Create a topic<//>`}>
    <div class="toolbar">
      <${SearchField} label="Search topics" placeholder="Part of a name, or ord*" value=${q} onSearch=${(text) => setQuery({ q: text, after: null })} />
      <${Field} type="check" label="Internal topics" value=${hasInternal} onInput=${(value) => setQuery({ internal: value ? "yes" : null, after: null })} />
    </div>
    <${ProblemBox} problem=${source.problem} onRetry=${source.problem?.status === 410 ? pages.onFirst : source.reload} isOld=${Boolean(data)} />
    ${!data && !source.problem && html`<${Loading} />`}
    ${data && html`<${Missing} missing=${data.missing} /><${List} data=${data} sort=${sort} q=${q} pages=${pages} reload=${source.reload} />`}
    <${Command} text="ottla topic list" />
  <//>`;
}

function List({ data, sort, q, pages, reload }) {
  if (!data.items.length) {
    return q
      ? html`<${Empty} title="No topic has this in its name">Internal topics are shown only if you ask for them.<//>`
      : html`<${Empty} title="No topics yet" command="ottla topic create orders -p 3 && ottla topic produce orders">A topic holds records. Create one here or on the command line, and write the first record.<//>`;
  }
  return html`<${Table}
      caption="Topics"
      rows=${data.items}
      rowKey=${(topic) => topic.name}
      sort=${sort}
      onSort=${(next) => setQuery({ sort: next, after: null })}
      columns=${[
        { id: "name", label: "Topic", sort: "name", isHeader: true, render: (topic) => html`<${TopicLink} name=${topic.name} />${topic.is_internal && html` <${Badge}>internal<//>`}` },
        { id: "state", label: "State", sort: "state", render: (topic) => html`<${StateBadge} state=${topic.state} />` },
        { id: "partitions", label: "Partitions", sort: "partitions", align: "right", render: (topic) => html`${count(topic.partitions)}<span class="dim"> × ${topic.replication_factor}</span>` },
        { id: "records", label: "Records", align: "right", render: (topic) => count(topic.records) },
        { id: "rate", label: "In", align: "right", render: (topic) => perSecond(topic.records_per_s) },
        { id: "size", label: "Size", sort: "size", align: "right", render: (topic) => html`<span title=${topic.size_bytes === null ? "" : `${count(topic.size_bytes)} bytes in all replicas`}>${bytes(topic.size_bytes)}</span>` },
        { id: "growth", label: "Grows", align: "right", isWide: true, render: (topic) => bytesPerSecond(topic.bytes_per_s) },
        { id: "last", label: "Last write", isWide: true, render: (topic) => html`<${Time} ms=${topic.last_write_ms} />` },
        {
          id: "groups", label: "Groups", isWide: true, render: (topic) =>
            topic.groups.length ? html`<span class="list">${topic.groups.slice(0, 3).map((each) => html`<${GroupLink} key=${each} id=${each} />`)}${topic.groups.length > 3 ? ` and ${topic.groups.length - 3} more` : ""}</span>` : html`<span class="dim">none</span>`,
        },
        { id: "do", label: "Actions", className: "row-actions", render: (topic) => html`<a class="button small" href=${to(["topics", topic.name, "records"])}>Records<span class="sr-only"> of ${topic.name}</span></a>` },
      ]}
    />
    <${Pager} total=${data.total} shown=${data.items.length} next=${data.next} noun="topics" isFirst=${pages.isFirst} onFirst=${pages.onFirst} onBack=${pages.onBack} onNext=${() => pages.onNext(data.next)} />`;
}

function configsOf(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [name, ...rest] = line.split("=");
    found[name.trim()] = rest.join("=").trim();
  }
  return found;
}

function creation(reload) {
  return {
    title: "Create a topic",
    fields: [
      { name: "name", label: "Name", required: true, pattern: "[A-Za-z0-9._\\-]+", maxLength: 249, help: "Letters, digits, dots, dashes and underscores." },
      { name: "partitions", label: "Partitions", type: "number", min: 1, placeholder: "default of the brokers" },
      { name: "replicas", label: "Replicas", type: "number", min: 1, placeholder: "default of the brokers" },
      { name: "configs", label: "Options", type: "textarea", rows: 3, placeholder: "retention.ms=86400000", help: "One option per line: name=value." },
    ],
    request: (values, isDryRun) => ({
      method: "POST",
      path: "topics",
      body: {
        name: values.name,
        partitions: values.partitions ? Number(values.partitions) : null,
        replication_factor: values.replicas ? Number(values.replicas) : null,
        configs: configsOf(values.configs),
        dry_run: isDryRun,
      },
    }),
    verb: "Create",
    onDone: reload,
  };
}

/** The change that deletes a topic; its name has to be typed. */
export function deletion(topic) {
  return {
    title: `Delete ${topic}`,
    intro: "All of its records are lost. This cannot be undone.",
    confirm: topic,
    isDangerous: true,
    verb: "Delete the topic",
    request: (_, isDryRun, typed) => ({ method: "DELETE", path: path("topics", topic), body: { confirm: isDryRun ? topic : typed, dry_run: isDryRun } }),
    onDone: () => go("topics"),
  };
}
