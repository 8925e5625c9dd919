// Who is connected, with which software, and what each client does.
import { useData } from "../lib/api.js";
import { bytesPerSecond, count, duration, perSecond } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { told } from "../lib/live.js";
import { setQuery } from "../lib/router.js";
import { Badge, BrokerLink, Empty, Field, Loaded, Page, SearchField, Table, Unknown } from "../lib/ui.js";

function rolesOf({ apis, client_id: clientId }) {
  const roles = [];
  if (/^broker-\d+-fetcher/.test(clientId)) return ["replicates"];
  if (apis.some((each) => each.startsWith("Produce"))) roles.push("produces");
  if (apis.some((each) => each.startsWith("Fetch"))) roles.push("consumes");
  if (apis.includes("UpdateMetadata")) roles.push("controls");
  return roles;
}

export default function ClientsPage({ query }) {
  const q = query.get("q") ?? "";
  const broker = query.get("broker") ?? "";
  const source = useData("clients", useMemo(() => ({ q, broker, limit: 500 }), [q, broker]), { every: 3000 });
  const brokers = told.value.overview?.brokers.filter((each) => each.is_alive) ?? [];
  return html`<${Page} title="Clients" lead="Connections to the brokers: who produces and consumes, and with which software.">
    <div class="toolbar">
      <${SearchField} label="Search clients" placeholder="User, client id, software or address" value=${q} onSearch=${(text) => setQuery({ q: text })} />
      <${Field} type="select" className="inline" label="Broker" value=${broker} onInput=${(value) => setQuery({ broker: value })} options=${[["", "all brokers"], ...brokers.map((each) => [String(each.broker_id), `broker ${each.broker_id}`])]} />
    </div>
    <${Loaded} source=${source}>
      ${(data) => html`
        <${Unknown} text=${data.unknown} />
        ${data.items.length
          ? html`<${Table}
              caption="Connections"
              rows=${data.items}
              rowKey=${(each) => `${each.broker_id} ${each.address} ${each.client_id}`}
              columns=${[
                { id: "client", label: "Client id and user", isHeader: true, className: "name", render: (each) => html`${each.client_id || html`<span class="dim">(none)</span>`}<br /><span class="dim">${each.principal}</span>` },
                { id: "software", label: "Software", className: "name", render: (each) => each.software || html`<span class="dim">not told</span>` },
                { id: "does", label: "Does", className: "event-text", render: (each) => html`${rolesOf(each).map((role) => html`<${Badge} key=${role} kind="info">${role}<//> `)}${each.is_throttled && html`<${Badge} kind="warning">throttled<//> `}${each.is_blocked && html`<${Badge} kind="warning">does not read<//> `}<span class="dim">${each.apis.join(", ")}</span>` },
                { id: "rate", label: "Requests", align: "right", render: (each) => html`<span title=${`${count(each.requests)} in all`}>${perSecond(each.requests_per_s)}</span>` },
                { id: "in", label: "Sends", align: "right", render: (each) => bytesPerSecond(each.bytes_in_per_s) },
                { id: "out", label: "Gets", align: "right", render: (each) => bytesPerSecond(each.bytes_out_per_s) },
                { id: "address", label: "Address", className: "name", isWide: true, render: (each) => html`${each.address} <span class="dim">${each.protocol || each.listener}</span>` },
                { id: "age", label: "Connected", isWide: true, render: (each) => html`${duration(each.connected_ms)}<span class="dim">, idle ${duration(each.idle_ms)}</span>` },
                { id: "broker", label: "Broker", align: "right", render: (each) => html`<${BrokerLink} id=${each.broker_id} />` },
              ]}
            />
            <p class="dim">${count(data.items.length)} of ${count(data.total)} connections${data.is_truncated ? "; the brokers have more than they tell" : ""}.</p>`
          : !data.unknown && html`<${Empty} title="No client matches" />`}
      `}
    <//>
  <//>`;
}
