// One topic with its partitions and replicas.
import { path } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { bytes, bytesPerSecond, count, perSecond } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useWatch } from "../lib/live.js";
import { Moves, moving, spreading } from "../lib/moves.js";
import { to } from "../lib/router.js";
import { Badge, BrokerLink, Command, GroupLink, Loaded, Page, Section, StateBadge, Table, Tabs, Tiles, Time, Empty } from "../lib/ui.js";
import { deletion } from "./topics.js";

/** The views of a topic. */
export function TopicTabs({ topic, current }) {
  return html`<${Tabs}
    label=${`Views of ${topic}`}
    current=${current}
    items=${[
      ["partitions", "Partitions", to(["topics", topic])],
      ["records", "Records", to(["topics", topic, "records"])],
      ["segments", "Segments", to(["topics", topic, "segments", "0"])],
      ["options", "Options", to(["topics", topic, "options"])],
    ]}
  />`;
}

export default function TopicPage({ topic }) {
  const source = useWatch(`topic:${topic}`);
  const actions = html`
    <${ChangeButton} spec=${() => morePartitions(topic, source.data)}>Add partitions<//>
    <${ChangeButton} spec=${() => spreading(topic, source.data)}>Move replicas<//>
    <${ChangeButton} spec=${() => trimming(topic)}>Trim<//>
    <${ChangeButton} kind="danger-quiet" spec=${() => deletion(topic)}>Delete<//>
  `;
  return html`<${Page} title=${topic} crumbs=${[["Topics", "topics"]]} actions=${actions}>
    <${TopicTabs} topic=${topic} current="partitions" />
    <${Loaded} source=${source}>${(data) => html`<${Detail} data=${data} />`}<//>
    <${Command} text=${`ottla topic describe ${quoted(topic)}`} />
  <//>`;
}

/** Quote a name for a shell, if it needs that. */
export function quoted(name) {
  return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", `'"'"'`)}'`;
}

function Detail({ data }) {
  return html`
    <${Tiles} items=${[
      { label: "State", value: html`<${StateBadge} state=${data.state} />`, note: data.is_internal ? "internal topic" : "" },
      { label: "Records", value: count(data.records), note: "offsets between start and end" },
      { label: "Records in", value: perSecond(data.records_per_s) },
      { label: "Size", value: bytes(data.size_bytes), note: data.bytes_per_s === null ? "of all replicas" : `of all replicas, grows ${bytesPerSecond(data.bytes_per_s)}`, title: data.size_bytes === null ? "" : `${count(data.size_bytes)} bytes` },
      { label: "Last write", value: html`<${Time} ms=${data.last_write_ms} />` },
      { label: "Replicas", value: count(data.replication_factor), note: "of each partition" },
    ]} />
    <${Moves} topic=${data.name} />
    <${Section} title="Partitions">
      <${Table}
        caption="Partitions"
        rows=${data.partitions}
        rowKey=${(each) => each.partition}
        columns=${[
          { id: "partition", label: "Partition", isHeader: true, align: "right", render: (each) => each.partition },
          { id: "state", label: "State", render: (each) => html`<${StateBadge} state=${each.state} />` },
          { id: "leader", label: "Leader", align: "right", render: (each) => html`<span title=${`Leader epoch ${each.leader_epoch}`}><${BrokerLink} id=${each.leader} /></span>${each.leader !== null && each.leader !== each.preferred_leader ? html` <span class="dim" title="Another replica is meant to lead">(planned ${each.preferred_leader})</span>` : ""}` },
          { id: "replicas", label: "Replicas", render: (each) => html`<span class="replicas">${each.replicas.map((replica) => html`<${Replica} key=${replica.broker_id} replica=${replica} />`)}</span>` },
          { id: "start", label: "Start", align: "right", className: "number", render: (each) => each.start_offset ?? "–" },
          { id: "end", label: "End", align: "right", className: "number", render: (each) => each.end_offset ?? "–" },
          { id: "records", label: "Records", align: "right", render: (each) => count(each.records) },
          { id: "rate", label: "In", align: "right", render: (each) => perSecond(each.records_per_s) },
          { id: "size", label: "Size", align: "right", render: (each) => bytes(each.size_bytes) },
          { id: "last", label: "Last write", isWide: true, render: (each) => html`<${Time} ms=${each.last_write_ms} />` },
          { id: "links", label: "Actions", className: "row-actions", render: (each) => html`<a class="button small" href=${to(["topics", data.name, "records"], { partition: each.partition })}>Records<span class="sr-only"> of partition ${each.partition}</span></a> <a class="button small" href=${to(["topics", data.name, "segments", each.partition])}>Segments<span class="sr-only"> of partition ${each.partition}</span></a>${" "}<${ChangeButton} kind="small" spec=${() => moving(data.name, each.partition, each.replicas.map((replica) => replica.broker_id))}>Move<span class="sr-only"> partition ${each.partition}</span><//>` },
        ]}
      />
    <//>
    <${Section} title="Groups that read it">
      ${data.groups.length
        ? html`<ul class="plain">${data.groups.map((each) => html`<li key=${each}><${GroupLink} id=${each} /></li>`)}</ul>`
        : html`<${Empty} title="No group has committed offsets of it" command=${`ottla topic consume ${quoted(data.name)} --group first`}>A group remembers how far its members have read.<//>`}
    <//>
    ${data.topic_id && html`<p class="dim">Topic id <code>${data.topic_id}</code></p>`}
  `;
}

function Replica({ replica }) {
  const kind = !replica.is_alive ? "broken" : replica.is_leader ? "info" : replica.is_in_sync ? "ok" : "warning";
  const word = !replica.is_alive ? "down" : replica.is_leader ? "leader" : replica.is_in_sync ? "in sync" : `behind by ${replica.offset_lag === null ? "an unknown number of" : count(replica.offset_lag)} records`;
  return html`<${Badge} kind=${kind}>${replica.broker_id}<span class=${kind === "ok" || kind === "info" ? "sr-only" : ""}> ${word}</span><//>`;
}

function morePartitions(topic, data) {
  return {
    title: `Add partitions to ${topic}`,
    intro: "The number can only grow.",
    fields: [{ name: "total", label: "Partitions in all", type: "number", min: 1, required: true, value: (data?.partitions.length ?? 0) + 1 }],
    request: (values, isDryRun) => ({ method: "POST", path: path("topics", topic, "partitions"), body: { total: Number(values.total), dry_run: isDryRun } }),
    verb: "Add partitions",
  };
}

function trimming(topic) {
  return {
    title: `Trim ${topic}`,
    intro: "Deletes the records before an offset or a time, for ever.",
    confirm: topic,
    isDangerous: true,
    fields: [{ name: "to", label: "Keep records from", required: true, placeholder: "@-7d", help: "start, end, an offset, -N (the last N), or @ and a time: @2026-01-31T12:00:00Z, @-7d." }],
    request: (values, isDryRun, typed) => ({ method: "POST", path: path("topics", topic, "trim"), body: { to: values.to, confirm: isDryRun ? "" : typed, dry_run: isDryRun } }),
    verb: "Delete the records",
  };
}
