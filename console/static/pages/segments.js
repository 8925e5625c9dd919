// The files of a partition on one broker, and why retention keeps each.
import { path, useData } from "../lib/api.js";
import { bytes, count, duration, plural } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { go, setQuery, to } from "../lib/router.js";
import { Badge, Command, Empty, Field, Loaded, Page, SearchField, Table, Tiles, Time, Unknown } from "../lib/ui.js";
import { quoted, TopicTabs } from "./topic.js";

export default function SegmentsPage({ topic, partition, query }) {
  return topic === undefined ? html`<${ChooseTopic} query=${query} />` : html`<${TopicSegments} topic=${topic} partition=${partition} query=${query} />`;
}

function ChooseTopic({ query }) {
  const q = query.get("q") ?? "";
  const source = useData("topics", useMemo(() => ({ q, limit: 50, internal: true, sort: "-size" }), [q]));
  return html`<${Page} title="Segments" lead="The files of a partition, and why retention has not deleted each of them yet. The largest topics come first.">
    <div class="toolbar"><${SearchField} label="Search topics" value=${q} onSearch=${(text) => setQuery({ q: text })} /></div>
    <${Loaded} source=${source}>
      ${(data) => data.items.length
        ? html`<${Table} caption="Topics" rows=${data.items} rowKey=${(each) => each.name} columns=${[
            { id: "name", label: "Topic", isHeader: true, render: (each) => html`<a class="name" href=${to(["topics", each.name, "segments", "0"])}>${each.name}</a>` },
            { id: "partitions", label: "Partitions", align: "right", render: (each) => count(each.partitions) },
            { id: "size", label: "Size of all replicas", align: "right", render: (each) => bytes(each.size_bytes) },
          ]} />`
        : html`<${Empty} title="No topic here" command="ottla topic create orders -p 3" />`}
    <//>
  <//>`;
}

function TopicSegments({ topic, partition, query }) {
  const broker = query.get("broker") ?? "";
  const detail = useData(path("topics", topic));
  const source = useData(`${path("topics", topic, "partitions", partition)}/segments`, useMemo(() => ({ broker }), [broker]), { every: 5000 });
  const partitions = detail.data?.partitions ?? [];
  const replicas = partitions.find((each) => String(each.partition) === partition)?.replicas ?? [];
  return html`<${Page} title=${topic} crumbs=${[["Topics", "topics"]]}>
    <${TopicTabs} topic=${topic} current="segments" />
    <div class="toolbar">
      <${Field} type="select" className="inline" label="Partition" value=${partition} onInput=${(value) => go(to(["topics", topic, "segments", value]))} options=${(partitions.length ? partitions.map((each) => String(each.partition)) : [partition])} />
      <${Field} type="select" className="inline" label="On broker" value=${broker} onInput=${(value) => setQuery({ broker: value })} options=${[["", "the leader"], ...replicas.map((each) => [String(each.broker_id), String(each.broker_id)])]} />
    </div>
    <${Loaded} source=${source}>${(data) => html`<${Files} data=${data} />`}<//>
    <${Command} text=${`ottla topic offsets ${quoted(topic)} && ottla log dirs`} />
  <//>`;
}

function kept(value, show) {
  return value === null ? "–" : BigInt(value) < 0n ? "no limit" : show(value);
}

function Files({ data }) {
  if (data.unknown) return html`<${Unknown} text=${data.unknown} />`;
  return html`
    <${Tiles} items=${[
      { label: "Offsets", value: html`<span class="number">${data.log_start_offset} – ${data.log_end_offset}</span>`, note: `on broker ${data.broker_id}` },
      { label: "High watermark", value: html`<span class="number">${data.high_watermark}</span>`, note: data.last_stable_offset === null ? "" : `stable up to ${data.last_stable_offset}` },
      { label: "Size", value: bytes(data.size_bytes), note: plural(data.items.length, "segment") },
      { label: "Policy", value: data.cleanup_policy ?? "–", note: `keep ${kept(data.retention_ms, duration)}, ${kept(data.retention_bytes, bytes)}` },
    ]} />
    ${data.path && html`<p class="dim">In <code>${data.path}</code></p>`}
    <${Table}
      caption="Segments"
      rows=${data.items}
      rowKey=${(each) => each.base_offset}
      columns=${[
        { id: "base", label: "From offset", isHeader: true, align: "right", className: "number", render: (each) => each.base_offset },
        { id: "next", label: "Up to", align: "right", className: "number", render: (each) => each.next_offset },
        { id: "size", label: "Size", align: "right", render: (each) => html`<span title=${`${count(each.size_bytes)} bytes, indexes ${count(each.index_bytes)} bytes`}>${bytes(each.size_bytes)}</span>` },
        { id: "first", label: "First record", isWide: true, render: (each) => html`<${Time} ms=${each.base_offset === each.next_offset ? null : each.first_timestamp_ms} />` },
        { id: "last", label: "Last record", render: (each) => html`<${Time} ms=${each.base_offset === each.next_offset ? null : each.last_timestamp_ms} />` },
        { id: "why", label: "Why it is still here", className: "event-text", render: (each) => html`${each.is_active && html`<${Badge} kind="info">active<//> `}${each.why_kept}` },
        { id: "deleted", label: "Deleted at the earliest", render: (each) => (each.deleted_ms === null ? html`<span class="dim">–</span>` : html`<${Time} ms=${each.deleted_ms} isLong />`) },
      ]}
    />
  `;
}
