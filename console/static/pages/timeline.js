// What happened in the cluster, and when.
import { useData } from "../lib/api.js";
import { html, useMemo } from "../lib/html.js";
import { setQuery, to } from "../lib/router.js";
import { Badge, BrokerLink, Button, Empty, Field, GroupLink, Loaded, Page, SearchField, Table, Time, TopicLink, Unknown } from "../lib/ui.js";

const KINDS = ["controller", "leader", "isr", "broker", "session", "option", "rebalance", "disk", "topic", "start"];
const URGENT = { controller: "info", leader: "info", isr: "warning", broker: "warning", session: "warning", disk: "broken" };

export default function TimelinePage({ query }) {
  const kind = query.get("kind") ?? "";
  const q = query.get("q") ?? "";
  const before = query.get("before") ?? "";
  const asked = useMemo(() => ({ kind: kind ? [kind] : [], q, before_ms: before, limit: 200 }), [kind, q, before]);
  const source = useData("timeline", asked, { every: before ? 0 : 3000 });
  return html`<${Page} title="Timeline" lead="Elections, in-sync replicas, sessions, options, rebalances and disks, the newest first.">
    <div class="toolbar">
      <${SearchField} label="Search events" value=${q} onSearch=${(text) => setQuery({ q: text })} />
      <${Field} type="select" className="inline" label="Kind" value=${kind} onInput=${(value) => setQuery({ kind: value })} options=${[["", "all kinds"], ...KINDS.map((each) => [each, each])]} />
      ${before && html`<${Button} kind="small" onClick=${() => setQuery({ before: null })}>Newest<//>`}
    </div>
    <${Loaded} source=${source}>
      ${(data) => html`
        <${Unknown} text=${data.unknown} />
        ${data.items.length
          ? html`<${Table}
              caption="Events"
              rows=${data.items}
              rowKey=${(each) => `${each.broker_id}-${each.sequence}`}
              columns=${[
                { id: "time", label: "Time", render: (each) => html`<${Time} ms=${each.at_ms} isLong hasMs />` },
                { id: "kind", label: "Kind", render: (each) => html`<${Badge} kind=${URGENT[each.kind] ?? "neutral"}>${each.kind}<//>` },
                { id: "text", label: "What happened", isHeader: true, className: "event-text", render: (each) => each.text },
                {
                  id: "where", label: "Where", render: (each) =>
                    each.group !== null ? html`<${GroupLink} id=${each.group} />`
                    : each.topic !== null ? html`<${TopicLink} name=${each.topic} />${each.partition === null ? "" : `-${each.partition}`}`
                    : html`<span class="dim">cluster</span>`,
                },
                { id: "broker", label: "Told by", align: "right", render: (each) => html`<${BrokerLink} id=${each.broker_id} />` },
              ]}
            />
            ${data.items.length >= 200 && html`<div class="pager"><span></span><a class="button small" href=${to("timeline", { kind, q, before: data.items.at(-1).at_ms })}>Older events</a></div>`}`
          : !data.unknown && html`<${Empty} title="Nothing happened" command="ottla group timeline GROUP">Brokers keep their last events in memory. Stop a broker, and see here what follows.<//>`}
      `}
    <//>
  <//>`;
}
