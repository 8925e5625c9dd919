// Where the time of requests goes, by API and phase.
import { useData } from "../lib/api.js";
import { count, milliseconds, percent, perSecond } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { told } from "../lib/live.js";
import { setQuery } from "../lib/router.js";
import { BrokerLink, Empty, Field, Loaded, Page, Table, Unknown } from "../lib/ui.js";

const PHASES = [["queue", "Queue", "waiting for a worker"], ["local", "Local", "work of the broker"], ["remote", "Remote", "waiting for other brokers, or for records"], ["send", "Send", "writing the response"]];

export default function RequestsPage({ query }) {
  const broker = query.get("broker") ?? "";
  const source = useData("requests", useMemo(() => ({ broker }), [broker]), { every: 3000 });
  const brokers = told.value.overview?.brokers.filter((each) => each.is_alive) ?? [];
  return html`<${Page} title="Requests" lead="Where the time of requests goes. APIs that take the most time come first.">
    <div class="toolbar">
      <${Field} type="select" className="inline" label="Broker" value=${broker} onInput=${(value) => setQuery({ broker: value })} options=${[["", "all brokers"], ...brokers.map((each) => [String(each.broker_id), `broker ${each.broker_id}`])]} />
    </div>
    <${Loaded} source=${source}>
      ${(data) => html`
        <${Unknown} text=${data.unknown} />
        ${data.items.length
          ? html`
              <p class="legend">${PHASES.map(([id, label, note]) => html`<span key=${id}><span class=${`phase ${id}`} aria-hidden="true"></span>${label}: ${note}</span>`)}</p>
              <${Table}
                caption="Requests by API"
                rows=${data.items}
                rowKey=${(each) => `${each.broker_id}-${each.api}`}
                columns=${[
                  { id: "api", label: "API", isHeader: true, render: (each) => each.api },
                  { id: "broker", label: "Broker", align: "right", render: (each) => html`<${BrokerLink} id=${each.broker_id} />` },
                  { id: "requests", label: "Requests", align: "right", render: (each) => count(each.requests) },
                  { id: "rate", label: "Now", align: "right", render: (each) => perSecond(each.requests_per_s) },
                  { id: "mean", label: "Mean", align: "right", render: (each) => milliseconds(each.total.mean_ms) },
                  { id: "p50", label: "Median", align: "right", isWide: true, render: (each) => milliseconds(each.total.p50_ms) },
                  { id: "p99", label: "99 %", align: "right", render: (each) => milliseconds(each.total.p99_ms) },
                  { id: "phases", label: "Phases", className: "phases-cell", render: (each) => html`<${Phases} row=${each} />` },
                ]}
              />
              ${Object.keys(data.throttled).length > 0 && html`<p>Most throttled clients wait: ${Object.entries(data.throttled).map(([kind, ms]) => `${kind} ${milliseconds(ms)}`).join(", ")}.</p>`}
            `
          : !data.unknown && html`<${Empty} title="No requests yet" command="ottla bench produce orders --records 100000" />`}
      `}
    <//>
  <//>`;
}

function Phases({ row }) {
  const words = PHASES.map(([id, label]) => `${label.toLowerCase()} ${percent(row[id].share)}, ${milliseconds(row[id].mean_ms)}`).join("; ");
  return html`<span class="phases" role="img" aria-label=${words} title=${words}>
    ${PHASES.map(([id]) => html`<span key=${id} class=${`phase ${id}`} style=${{ width: `${row[id].share * 100}%` }}></span>`)}
  </span>`;
}
