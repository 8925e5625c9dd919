// Brokers, their disks, and whether each can be stopped now.
import { useData } from "../lib/api.js";
import { bytes, bytesPerSecond, count, duration, percent, perSecond, plural, share } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useWatch } from "../lib/live.js";
import { Moves } from "../lib/moves.js";
import { to } from "../lib/router.js";
import { Badge, Command, Loaded, LinkButton, Meter, Page, Section, Table, Tiles, Unknown } from "../lib/ui.js";

export default function BrokersPage({ part }) {
  return part === undefined ? html`<${AllBrokers} />` : html`<${OneBroker} id=${part} />`;
}

function AllBrokers() {
  const source = useWatch("brokers");
  return html`<${Page} title="Brokers and disks" lead="Each broker, how full its disks are, and whether it is safe to stop now.">
    <${Loaded} source=${source}>
      ${(data) => html`<${Moves} /><div class="broker-cards">${data.items.map((each) => html`<${BrokerCard} key=${each.broker_id} broker=${each} />`)}</div>
        <${Command} text="ottla cluster brokers" />`}
    <//>
  <//>`;
}

function State({ broker }) {
  return html`${broker.is_alive ? html`<${Badge} kind="ok">Up<//>` : html`<${Badge} kind="broken">Down<//>`}
  ${broker.is_controller && html` <${Badge} kind="info">Controller<//>`}`;
}

function BrokerCard({ broker }) {
  const id = `broker-${broker.broker_id}`;
  return html`<article class="card" aria-labelledby=${id}>
    <div class="card-head">
      <h2 id=${id}><a href=${to(["brokers", broker.broker_id])}>Broker ${broker.broker_id}</a></h2>
      <span><${State} broker=${broker} /></span>
    </div>
    <p class="dim">${broker.host === null ? "Its address is not known while it is down." : `${broker.host}:${broker.port}`}${broker.rack ? `, rack ${broker.rack}` : ""}${broker.software ? `, ${broker.software}` : ""}${broker.uptime_ms === null ? "" : `, up for ${duration(broker.uptime_ms)}`}</p>
    <${SafeToStop} found=${broker.safe_to_stop} isAlive=${broker.is_alive} />
    <${Tiles} items=${numbers(broker)} />
    <${Disks} broker=${broker} />
  </article>`;
}

function numbers(broker) {
  return [
    { label: "Leaders", value: count(broker.leaders) },
    { label: "Replicas", value: count(broker.replicas), note: broker.lagging ? `${count(broker.lagging)} lagging` : "all in sync", kind: broker.lagging ? "warning" : "" },
    { label: "Data", value: bytes(broker.size_bytes), title: broker.size_bytes === null ? "" : `${count(broker.size_bytes)} bytes` },
  ];
}

function SafeToStop({ found, isAlive }) {
  if (!found) return isAlive ? null : html`<div class="notice broken"><span class="mark" aria-hidden="true">✕</span><div><strong>It is down.</strong> Start it again; its replicas catch up by themselves.</div></div>`;
  return html`<div class=${`notice ${found.is_safe ? "ok" : "warning"}`}>
    <span class="mark" aria-hidden="true">${found.is_safe ? "●" : "▲"}</span>
    <div>
      Safe to stop now? <strong>${found.is_safe ? "Yes" : "No"}.</strong>${/^safe to stop now/i.test(found.verdict) ? "" : ` ${found.verdict}`}
      ${found.reasons.length > 0 && html`<ul>${found.reasons.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`}
    </div>
  </div>`;
}

function Disks({ broker }) {
  if (!broker.log_dirs.length) return html`<p class="dim">Its disks are not known${broker.is_alive ? "." : " while it is down."}</p>`;
  return html`<${Table}
    caption=${`Log directories of broker ${broker.broker_id}`}
    rows=${broker.log_dirs}
    rowKey=${(each) => each.path}
    columns=${[
      { id: "path", label: "Log directory", isHeader: true, className: "name path", render: (each) => each.path },
      {
        id: "full", label: "Disk full", render: (each) => {
          if (each.error) return html`<${Badge} kind="broken">${each.error}<//>`;
          const free = share(each.free_bytes, each.total_bytes);
          return free === null ? "–" : html`<${Meter} share=${1 - free} label=${`${percent(1 - free)} full`} /> ${percent(1 - free)}`;
        },
      },
      { id: "free", label: "Free", align: "right", render: (each) => bytes(each.free_bytes) },
      { id: "size", label: "Data", align: "right", render: (each) => bytes(each.size_bytes) },
      { id: "replicas", label: "Replicas", align: "right", render: (each) => html`${count(each.replicas)}${each.moving_here ? ` (+${each.moving_here} moving here)` : ""}` },
    ]}
  />`;
}

const LOAD = {
  records_in_per_s: ["Records in", (value) => perSecond(value)],
  bytes_in_per_s: ["Bytes in", bytesPerSecond],
  bytes_out_per_s: ["Bytes out", bytesPerSecond],
  requests_per_s: ["Requests", (value) => perSecond(value)],
};

function loadTile([name, value]) {
  const known = LOAD[name];
  if (known) return { label: known[0], value: known[1](value) };
  const words = name.replaceAll("_", " ");
  return { label: words[0].toUpperCase() + words.slice(1), value: value === null ? "–" : /idle|share/.test(name) ? percent(value) : count(Math.round(value * 100) / 100) };
}

function OneBroker({ id }) {
  const source = useData(`brokers/${encodeURIComponent(id)}`, {}, { every: 3000 });
  const actions = html`
    <${LinkButton} href=${to("clients", { broker: id })}>Clients<//>
    <${LinkButton} href=${to("requests", { broker: id })}>Requests<//>
    <${LinkButton} href=${to(["brokers", id, "options"])}>Options<//>
  `;
  return html`<${Page} title=${`Broker ${id}`} crumbs=${[["Brokers", "brokers"]]} actions=${actions}>
    <${Loaded} source=${source}>
      ${({ broker, load, listeners, inside_unknown: unknown }) => html`
        <p><${State} broker=${broker} /> <span class="dim">${broker.host === null ? "" : `${broker.host}:${broker.port}`}${broker.rack ? `, rack ${broker.rack}` : ""}${broker.software ? `, ${broker.software}` : ""}${broker.uptime_ms === null ? "" : `, up for ${duration(broker.uptime_ms)}`}</span></p>
        <${SafeToStop} found=${broker.safe_to_stop} isAlive=${broker.is_alive} />
        ${broker.safe_to_stop && html`<p class="dim">${plural(broker.safe_to_stop.leaders_to_move, "leadership moves", "leaderships move")} to other brokers when it stops.</p>`}
        <${Section} title="Load">
          <${Unknown} text=${unknown} />
          <${Tiles} items=${[...numbers(broker), ...Object.entries(load).map(loadTile)]} />
          ${listeners.length > 0 && html`<p class="dim">Listeners: ${listeners.join(", ")}</p>`}
        <//>
        <${Section} title="Disks"><${Disks} broker=${broker} /><//>
        <${Command} text="ottla cluster brokers && ottla log dirs" />
      `}
    <//>
  <//>`;
}
