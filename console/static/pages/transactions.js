// Transactions: those that are open, what holds the stable offset, and all transactional ids.
import { useData } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { count, duration } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { setQuery } from "../lib/router.js";
import { Badge, BrokerLink, Command, Empty, Loaded, Page, Pager, SearchField, Section, Table, Time, TopicLink, Unknown, usePages } from "../lib/ui.js";

export default function TransactionsPage({ query }) {
  return html`<${Page} title="Transactions" lead="Readers of committed records wait at the first open transaction of a partition: the last stable offset.">
    <${Open} />
    <${Ids} query=${query} />
    <${Command} text="ottla transaction list && ottla transaction find-hanging" />
  <//>`;
}

function Open() {
  const source = useData("transactions/open", {}, { every: 5000 });
  return html`<${Section} title="Open now">
    <${Loaded} source=${source}>
      ${(data) => html`<${Unknown} text=${data.unknown} />
        ${data.items.length
          ? html`<${Table}
              caption="Open transactions by partition"
              rows=${data.items}
              rowKey=${(each) => `${each.topic}-${each.partition}-${each.producer_id}`}
              columns=${[
                { id: "partition", label: "Partition", isHeader: true, render: (each) => html`<${TopicLink} name=${each.topic} />-${each.partition}` },
                { id: "state", label: "State", render: (each) => html`${each.is_hanging ? html`<${Badge} kind="broken">Hanging<//>` : html`<${Badge} kind="info">${each.state ?? "Open"}<//>`} ${each.holds && html`<${Badge} kind="warning">Holds readers back<//>`}` },
                { id: "id", label: "Transactional id", className: "name", render: (each) => each.transactional_id ?? html`<span class="dim">not known</span>` },
                { id: "age", label: "Open for", render: (each) => html`<${Time} ms=${each.started_ms ?? each.last_write_ms} />${each.timeout_ms === null ? "" : html` <span class="dim">timeout ${duration(each.timeout_ms)}</span>`}` },
                { id: "waiting", label: "Waiting", align: "right", render: (each) => html`<strong>${count(each.waiting)}</strong>` },
                { id: "stable", label: "Stable offset", align: "right", className: "number", isWide: true, render: (each) => each.last_stable_offset },
                { id: "producer", label: "Producer", align: "right", className: "number", isWide: true, render: (each) => `${each.producer_id} / ${each.producer_epoch}` },
                { id: "do", label: "Actions", className: "row-actions", render: (each) => html`<${ChangeButton} kind="small danger-quiet" spec=${() => abortion(each, source.reload)}>Abort<span class="sr-only"> in ${each.topic}-${each.partition}</span><//>` },
              ]}
            />`
          : !data.unknown && html`<${Empty} title="No transaction is open">Readers of committed records see everything that is written.<//>`}`}
    <//>
  <//>`;
}

function abortion(each, reload) {
  return {
    title: `Abort a transaction in ${each.topic}-${each.partition}`,
    intro: each.is_hanging
      ? "No coordinator will ever end this transaction. Its records in this partition are dropped for readers of committed records."
      : "A coordinator knows this transaction: it may be committed in other partitions. Prefer to fence its producer.",
    isDangerous: true,
    request: (_, isDryRun) => ({
      method: "POST",
      path: "transactions/abort",
      body: { topic: each.topic, partition: each.partition, producer_id: each.producer_id, producer_epoch: each.producer_epoch, coordinator_epoch: each.coordinator_epoch, force: !each.is_hanging, dry_run: isDryRun },
    }),
    verb: "Abort the transaction",
    onDone: reload,
  };
}

function Ids({ query }) {
  const q = query.get("q") ?? "";
  const sort = query.get("sort") ?? "transactional_id";
  const after = query.get("after");
  const asked = useMemo(() => ({ q, sort, after, limit: 100 }), [q, sort, after]);
  const source = useData("transactions", asked, { every: 5000 });
  const pages = usePages(after, (value) => setQuery({ after: value }));
  return html`<${Section} title="Transactional ids">
    <div class="toolbar"><${SearchField} label="Search transactional ids" value=${q} onSearch=${(text) => setQuery({ q: text, after: null })} /></div>
    <${Loaded} source=${source}>
      ${(data) => data.items.length
        ? html`<${Table}
              caption="Transactional ids"
              rows=${data.items}
              rowKey=${(each) => each.transactional_id}
              sort=${sort}
              onSort=${(next) => setQuery({ sort: next, after: null })}
              columns=${[
                { id: "id", label: "Transactional id", sort: "transactional_id", isHeader: true, className: "name", render: (each) => each.transactional_id },
                { id: "state", label: "State", sort: "state", render: (each) => html`<${Badge} kind=${each.state === "Ongoing" ? "info" : "neutral"}>${each.state}<//>${each.error ? html` <span class="error-text">${each.error}</span>` : ""}` },
                { id: "started", label: "Began", render: (each) => html`<${Time} ms=${each.started_ms} />` },
                { id: "partitions", label: "Partitions", className: "name", render: (each) => each.partitions.slice(0, 5).join(", ") + (each.partitions.length > 5 ? ` and ${each.partitions.length - 5} more` : "") || "–" },
                { id: "producer", label: "Producer", align: "right", className: "number", isWide: true, render: (each) => `${each.producer_id} / ${each.producer_epoch ?? "–"}` },
                { id: "coordinator", label: "Coordinator", align: "right", isWide: true, render: (each) => html`<${BrokerLink} id=${each.coordinator} />` },
                { id: "do", label: "Actions", className: "row-actions", render: (each) => html`<${ChangeButton} kind="small danger-quiet" spec=${() => fencing(each.transactional_id, source.reload)}>Fence<span class="sr-only"> ${each.transactional_id}</span><//>` },
              ]}
            />
            <${Pager} total=${data.total} shown=${data.items.length} next=${data.next} noun="ids" isFirst=${pages.isFirst} onFirst=${pages.onFirst} onBack=${pages.onBack} onNext=${() => pages.onNext(data.next)} />`
        : html`<${Empty} title=${q ? "No id matches" : "No producer has used transactions"}>A producer with a transactional id writes to several partitions at once, or not at all.<//>`}
    <//>
  <//>`;
}

function fencing(id, reload) {
  return {
    title: `Fence ${id}`,
    intro: "Aborts its open transaction, and shuts out the producer that uses the id now.",
    isDangerous: true,
    request: (_, isDryRun) => ({ method: "POST", path: "transactions/fence", body: { transactional_id: id, dry_run: isDryRun } }),
    verb: "Fence the producer",
    onDone: reload,
  };
}
