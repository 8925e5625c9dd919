// Moves of replicas to other brokers: how far they are, and the dialogs that start and cancel them.
import { useData } from "./api.js";
import { ChangeButton } from "./change.js";
import { bytes, bytesPerSecond, duration, percent, share } from "./format.js";
import { html } from "./html.js";
import { Meter, Section, Table, TopicLink } from "./ui.js";

/** The partitions that move now, of one topic or of all; nothing if none does. */
export function Moves({ topic }) {
  const source = useData("reassignments", { topic }, { every: 3000 });
  const items = source.shown?.items ?? [];
  if (!items.length) return null;
  const actions = html`<${ChangeButton} kind="small danger-quiet" spec=${() => cancellation(items, source.reload)}>Cancel all<//>`;
  return html`<${Section} title="Partitions that move" actions=${actions}>
    <${Table}
      caption="Partitions that move to other brokers"
      rows=${items}
      rowKey=${(each) => `${each.topic}-${each.partition}`}
      columns=${[
        { id: "partition", label: "Partition", isHeader: true, render: (each) => html`<${TopicLink} name=${each.topic} />-${each.partition}` },
        { id: "to", label: "To", render: (each) => brokers(each.adding.map((one) => one.broker_id)) },
        { id: "from", label: "From", render: (each) => brokers(each.removing) },
        { id: "progress", label: "Copied", className: "nowrap", render: (each) => html`<${Progress} move=${each} />` },
        { id: "do", label: "Actions", className: "row-actions", render: (each) => html`<${ChangeButton} kind="small danger-quiet" spec=${() => cancellation([each], source.reload)}>Cancel<span class="sr-only"> the move of ${each.topic}-${each.partition}</span><//>` },
      ]}
    />
  <//>`;
}

function brokers(ids) {
  return ids.length ? ids.join(", ") : html`<span class="dim">none</span>`;
}

/** The replica that has copied least. */
function Progress({ move }) {
  const known = move.adding.map((each) => ({ ...each, share: move.size_bytes === "0" ? 1 : share(each.size_bytes ?? "0", move.size_bytes) })).filter((each) => each.share !== null);
  const slowest = known.sort((one, other) => one.share - other.share)[0];
  if (!slowest) return html`<span class="dim">${move.adding.length ? "not known" : "nothing to copy"}</span>`;
  const done = Math.min(1, slowest.share);
  const left = Math.max(0, Number(move.size_bytes) - Number(slowest.size_bytes ?? 0));
  const rate = slowest.bytes_per_s;
  const note = rate ? `, ${bytesPerSecond(rate)}, ${duration((left / rate) * 1000)} left` : "";
  return html`<${Meter} share=${done} label=${`${percent(done)} copied`} isNeutral /> <span>${percent(done)} of ${bytes(move.size_bytes)}<span class="dim">${note}</span></span>`;
}

function ids(text) {
  return text.split(",").map((each) => each.trim()).filter(Boolean).map(Number);
}

/** Move one partition. */
export function moving(topic, partition, replicas) {
  return {
    title: `Move ${topic}-${partition}`,
    intro: "The partition stays available while its records are copied. The first broker becomes the preferred leader.",
    fields: [{ name: "replicas", label: "Brokers", value: replicas.join(", "), required: true, pattern: "[0-9, ]*", help: "With commas between them; more or fewer than now change the replication factor." }],
    request: (values, isDryRun) => ({ method: "POST", path: "reassignments", body: { partitions: [{ topic, partition, replicas: ids(values.replicas) }], dry_run: isDryRun } }),
    verb: "Move the partition",
  };
}

/** Spread a topic over brokers. */
export function spreading(topic, data) {
  const used = [...new Set((data?.partitions ?? []).flatMap((each) => each.replicas.map((replica) => replica.broker_id)))].sort((one, other) => one - other);
  return {
    title: `Move the replicas of ${topic}`,
    intro: "Spreads the partitions over these brokers, round robin. They stay available while records are copied.",
    isWide: true,
    fields: [
      { name: "brokers", label: "Brokers", value: used.join(", "), required: true, pattern: "[0-9, ]*", help: "With commas between them." },
      { name: "factor", label: "Replicas of each partition", type: "number", min: 1, placeholder: "as now" },
    ],
    request: (values, isDryRun) => ({
      method: "POST",
      path: "reassignments",
      body: { spread: { topics: [topic], brokers: ids(values.brokers), replication_factor: values.factor === "" ? null : Number(values.factor) }, dry_run: isDryRun },
    }),
    verb: "Move the replicas",
  };
}

function cancellation(items, reload) {
  const one = items.length === 1 ? `${items[0].topic}-${items[0].partition}` : `${items.length} partitions`;
  return {
    title: `Cancel the move of ${one}`,
    intro: "The partitions stay where they were; what has been copied is deleted.",
    isDangerous: true,
    request: (_, isDryRun) => ({ method: "DELETE", path: "reassignments", body: { partitions: items.map(({ topic, partition }) => ({ topic, partition })), dry_run: isDryRun } }),
    verb: "Cancel the move",
    onDone: reload,
  };
}
