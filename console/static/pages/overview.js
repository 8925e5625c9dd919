// The whole cluster at a glance: what needs attention, brokers and their replicas, rates.
import { useData } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { Chart } from "../lib/chart.js";
import { bytes, bytesPerSecond, count, perSecond, plural, share, percent } from "../lib/format.js";
import { html, signal, useEffect, useRef, useState } from "../lib/html.js";
import { history, useWatch } from "../lib/live.js";
import { setQuery, to } from "../lib/router.js";
import { Badge, BrokerLink, Button, classNames, Command, Empty, Field, Loaded, Meter, Missing, Page, Section, StateBadge, Table, Tiles, TopicLink } from "../lib/ui.js";

const PARTITIONS_MAX = 300;
// So many partitions fit as larger squares.
const FEW = 120;

export default function OverviewPage({ query }) {
  const source = useWatch("overview");
  const state = query.get("state") ?? "any";
  const [hasInternal, setInternal] = useState(true);
  // Both are asked for at once.
  const cells = useData("partitions", { state, internal: hasInternal, limit: PARTITIONS_MAX }, { every: 3000 });
  const picture = { state, hasInternal, setInternal, cells };
  return html`<${Page} title="Overview">
    <${Loaded} source=${source} hasMissing=${false}>${(overview) => html`<${Overview} overview=${overview} picture=${picture} />`}<//>
  <//>`;
}

function Overview({ overview, picture }) {
  const { partitions, rates, brokers, groups } = overview;
  const alive = brokers.filter((each) => each.is_alive).length;
  const members = Object.values(groups).reduce((total, each) => total + each, 0);
  const weak = partitions.lagging + partitions.offline;
  const tiles = [
    { label: "Brokers", value: `${alive} of ${brokers.length}`, note: overview.controller_id === null ? "no controller" : `controller ${overview.controller_id}`, kind: alive < brokers.length ? "warning" : "" },
    { label: "Partitions", value: count(partitions.total), note: weak ? `${count(weak)} not healthy` : "all in sync", kind: partitions.offline ? "broken" : partitions.lagging ? "warning" : "" },
    { label: "Topics", value: count(overview.topics), note: `${count(overview.internal_topics)} internal` },
    { label: "Groups", value: count(members), note: Object.entries(groups).map(([name, each]) => `${each} ${name.toLowerCase()}`).join(", ") || "none yet" },
    { label: "Records in", value: perSecond(rates.records_in_per_s) },
    { label: "Bytes in", value: bytesPerSecond(rates.bytes_in_per_s), note: rates.bytes_out_per_s === null ? "" : `${bytesPerSecond(rates.bytes_out_per_s)} out` },
  ];
  return html`
    <${AttentionList} items=${overview.attention} />
    <${Missing} missing=${overview.missing} />
    <${Tiles} items=${tiles} />
    <${Cluster} overview=${overview} ...${picture} />
    <${Rates} rates=${rates} />
    <p class="dim">Cluster <code>${overview.cluster_id ?? "without an id"}</code></p>
    <${Command} text="ottla status" />
  `;
}

function AttentionList({ items }) {
  if (!items.length) {
    return html`<div class="notice ok" role="status"><span class="mark" aria-hidden="true">●</span><div><strong>All is well.</strong> Every partition has a leader and all of its replicas in sync.</div></div>`;
  }
  return html`<${Section} title="Needs attention">
    <ul class="attention">
      ${items.map(
        (each) => html`<li key=${each.subject + each.found} class=${each.severity}>
          <${Badge} kind=${each.severity}>${each.severity === "broken" ? "Broken" : "Warning"}<//>
          <div>
            <p><strong>${each.found}</strong> ${each.advice}</p>
            ${each.command && html`<code class="inline-command">${each.command}</code>`}
          </div>
          ${each.link && html`<a class="button small" href=${each.link}>Show<span class="sr-only"> ${each.subject}</span></a>`}
        </li>`,
      )}
    </ul>
  <//>`;
}

function Rates({ rates }) {
  const data = history.value;
  const word = { brokers: "from the counters of the brokers", offsets: "from the growth of partitions; only Ottla's brokers count bytes", none: "not known yet" }[rates.source];
  const isEmpty = data[0].length < 2;
  return html`<${Section} title="Rates">
    <p class="dim">Over the last minutes while this page was open, ${word}.</p>
    ${isEmpty
      ? html`<p class="dim" role="status">Collecting the first points …</p>`
      : html`<div class="charts">
          <${Chart} label="Records in" data=${[data[0], data[1]]} series=${[{ label: "Records in", colour: "--chart-1", format: (value) => perSecond(value) }]} />
          ${rates.source === "brokers" &&
          html`<${Chart}
            label="Bytes"
            data=${[data[0], data[2], data[3]]}
            series=${[
              { label: "In", colour: "--chart-1", format: bytesPerSecond },
              { label: "Out", colour: "--chart-2", isDashed: true, format: bytesPerSecond },
            ]}
          />`}
        </div>`}
  <//>`;
}

// The partition under the pointer is marked on all of its brokers.
const pointed = signal(null);

function Cluster({ overview, state, hasInternal, setInternal, cells: source }) {
  const [isTable, setTable] = useState(false);
  // The counts come with the stream: when they change, the picture is old.
  const counts = JSON.stringify([overview.partitions, overview.brokers.map((each) => [each.broker_id, each.is_alive, each.leaders])]);
  const shown = useRef(counts);
  useEffect(() => {
    if (shown.current !== counts) source.reload();
    shown.current = counts;
  }, [counts]);
  const actions = html`
    <${Field} type="select" label="Show" className="inline" value=${state} onInput=${(value) => setQuery({ state: value === "any" ? null : value })}
      options=${[["any", "all partitions"], ["lagging", "lagging ones"], ["offline", "without a leader"], ["ok", "in sync"]]} />
    <${Field} type="check" label="Internal topics" value=${hasInternal} onInput=${setInternal} />
    <${Button} kind="small quiet" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>${isTable ? "Picture" : "Table"}<//>
    ${overview.partitions.not_preferred > 0 &&
    html`<${ChangeButton} kind="small" spec=${{
      title: "Elect preferred leaders",
      intro: `${plural(overview.partitions.not_preferred, "partition is", "partitions are")} led by another broker than planned, for instance after a restart.`,
      request: (_, isDryRun) => ({ method: "POST", path: "elections", body: { dry_run: isDryRun } }),
      verb: "Elect",
    }}>Elect preferred leaders<//>`}
  `;
  return html`<${Section} title="Brokers and their partitions" actions=${actions}>
    <${Loaded} source=${source} hasMissing=${false}>
      ${(cells) => html`
        ${isTable ? html`<${CellTable} items=${cells.items} />` : html`<${Picture} overview=${overview} cells=${cells} />`}
        ${cells.total > cells.items.length &&
        html`<p class="dim">The ${count(cells.items.length)} most urgent of ${count(cells.total)} partitions are shown.</p>`}
      `}
    <//>
  <//>`;
}

function Picture({ overview, cells }) {
  const byId = Object.fromEntries(overview.brokers.map((each) => [each.broker_id, each]));
  const pointedName = pointed.value === null ? null : cells.items[pointed.value];
  return html`
    <p class="legend" aria-hidden="true">
      <span><span class="cell leader"></span>leader</span><span><span class="cell in-sync"></span>in sync</span>
      <span><span class="cell lagging"></span>lagging</span><span><span class="cell offline"></span>no leader</span>
      <span class="dim pointed-name">${pointedName ? `${pointedName.topic}-${pointedName.partition}` : ""}</span>
    </p>
    <ul class="brokers-picture" onMouseLeave=${() => (pointed.value = null)}>
      ${cells.brokers.map((id) => html`<${BrokerRow} key=${id} id=${id} broker=${byId[id]} items=${cells.items} />`)}
    </ul>
    ${cells.items.length === 0 && html`<${Empty} title="No partitions here" command="ottla topic create orders -p 3">Create a topic, or choose other partitions above.<//>`}
  `;
}

function BrokerRow({ id, broker, items }) {
  const isAlive = broker?.is_alive ?? false;
  const kind = (cell) => {
    if (!cell.replicas.includes(id)) return "none";
    if (cell.state === "offline") return "offline";
    if (cell.leader === id) return "leader";
    return cell.isr.includes(id) ? "in-sync" : "lagging";
  };
  const used = broker && share(broker.disk_free_bytes, broker.disk_total_bytes);
  return html`<li class=${isAlive ? "" : "down"}>
    <div class="broker-head">
      <span class="broker-name"><a href=${to(["brokers", id])}>Broker ${id}</a>
        ${!isAlive && html`<${Badge} kind="broken">Down<//>`}${broker?.is_controller && html`<${Badge} kind="info">Controller<//>`}
        ${isAlive && broker.lagging > 0 && html`<${Badge} kind="warning">${count(broker.lagging)} lagging<//>`}
      </span>
      <span class="dim">${broker ? `${plural(broker.leaders, "leader")}, ${plural(broker.replicas, "replica")}` : ""}${broker?.size_bytes ? `, ${bytes(broker.size_bytes)}` : ""}</span>
      ${used !== null && used !== undefined && html`<span class="disk"><${Meter} share=${1 - used} label=${`Disk ${percent(1 - used)} full`} /> <span class="dim">${percent(1 - used)} of the disk</span></span>`}
    </div>
    <div class=${items.length <= FEW ? "cells few" : "cells"} aria-hidden="true">
      ${items.map(
        (cell, index) => html`<span key=${`${cell.topic}-${cell.partition}`} class=${classNames("cell", kind(cell), cell.topic !== items[index - 1]?.topic && "first", pointed.value === index && "pointed")}
          title=${`${cell.topic}-${cell.partition}`} onMouseEnter=${() => (pointed.value = index)}></span>`,
      )}
    </div>
  </li>`;
}

function CellTable({ items }) {
  return html`<${Table}
    caption="Partitions and their replicas"
    rows=${items}
    rowKey=${(cell) => `${cell.topic}-${cell.partition}`}
    columns=${[
      { id: "partition", label: "Partition", isHeader: true, render: (cell) => html`<${TopicLink} name=${cell.topic} />-${cell.partition}` },
      { id: "state", label: "State", render: (cell) => html`<${StateBadge} state=${cell.state} />` },
      { id: "leader", label: "Leader", align: "right", render: (cell) => html`<${BrokerLink} id=${cell.leader} />` },
      { id: "replicas", label: "Replicas", render: (cell) => cell.replicas.join(", ") },
      { id: "isr", label: "In sync", render: (cell) => cell.isr.join(", ") },
    ]}
  />`;
}
