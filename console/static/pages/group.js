// One group: its lag in records and in seconds, who reads what, and its rebalances.
import { path } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { Chart } from "../lib/chart.js";
import { count, duration, plural } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useWatch } from "../lib/live.js";
import { go } from "../lib/router.js";
import { Command, Empty, GroupBadge, lagTime, Loaded, Page, ProgressBadge, Section, Table, Tiles, Time, TopicLink, Unknown } from "../lib/ui.js";
import { quoted } from "./topic.js";

const POINTS_MAX = 300;
const EVERY_MS = 2000;

export default function GroupPage({ group }) {
  const source = useWatch(`group:${group}`);
  const actions = html`
    <${ChangeButton} kind="primary" spec=${() => seeking(group)}>Seek<//>
    <${ChangeButton} kind="danger-quiet" spec=${() => deletion(group)}>Delete<//>
  `;
  return html`<${Page} title=${group || "(empty id)"} crumbs=${[["Groups", "groups"]]} actions=${actions}>
    <${Loaded} source=${source}>${(data) => html`<${Detail} data=${data} />`}<//>
    <${Command} text=${`ottla group describe ${quoted(group)}`} />
  <//>`;
}

/** The lag since the page was opened, one point every two seconds. */
function useTrend(data) {
  const latest = useRef(data);
  latest.current = data;
  const [trend, setTrend] = useState([[], []]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.hidden) return;
      const { lag } = latest.current;
      setTrend(([times, lags]) => [[...times.slice(1 - POINTS_MAX), Date.now() / 1000], [...lags.slice(1 - POINTS_MAX), lag === null ? null : Number(lag)]]);
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  return trend;
}

function Detail({ data }) {
  const trend = useTrend(data);
  return html`
    <${Tiles} items=${[
      { label: "State", value: html`<${GroupBadge} state=${data.state} />`, note: `coordinator ${data.coordinator}` },
      { label: "Lag", value: count(data.lag), note: "records" },
      { label: "Lag in time", value: lagTime(data.lag_ms), note: "age of the oldest unread record" },
      { label: "Reading", value: html`<${ProgressBadge} progress=${data.progress} />`, note: data.stopped_partitions ? `stopped in ${plural(data.stopped_partitions, "partition")}` : "" },
      { label: "Members", value: count(data.members.length), note: data.assignor ? `assignor ${data.assignor}` : "" },
      { label: "Protocol", value: data.type, note: data.group_epoch === null ? data.protocol_type : `epoch ${data.group_epoch}` },
    ]} />
    ${trend[0].length > 1 &&
    html`<${Section} title="Lag since this page was opened">
      <${Chart} label="Lag" data=${trend} height=${120} series=${[{ label: "Records", colour: "--chart-1", format: (value) => (value === null ? "–" : count(Math.round(value))) }]} />
    <//>`}
    <${Section} title="Partitions">
      ${data.partitions.length
        ? html`<${Table}
            caption="Partitions of the group"
            rows=${data.partitions}
            rowKey=${(each) => `${each.topic}-${each.partition}`}
            columns=${[
              { id: "partition", label: "Partition", isHeader: true, render: (each) => html`<${TopicLink} name=${each.topic} />-${each.partition}` },
              { id: "committed", label: "Committed", align: "right", className: "number", render: (each) => each.committed_offset ?? "–" },
              { id: "end", label: "End", align: "right", className: "number", render: (each) => each.end_offset ?? "–" },
              { id: "lag", label: "Lag", align: "right", render: (each) => html`<strong>${count(each.lag)}</strong>` },
              { id: "time", label: "Lag in time", align: "right", className: "nowrap", render: (each) => lagTime(each.lag_ms) },
              { id: "progress", label: "Reading", render: (each) => html`<${ProgressBadge} progress=${each.progress} />` },
              { id: "reader", label: "Read by", className: "name", render: (each) => (each.member_id === null ? html`<span class="dim">nobody</span>` : html`${each.client_id ?? each.member_id} <span class="dim">${each.client_host ?? ""}</span>`) },
            ]}
          />`
        : html`<${Empty} title="It has committed nothing and reads nothing" />`}
    <//>
    <${Section} title="Members">
      ${data.members.length
        ? html`<${Table}
            caption="Members"
            rows=${data.members}
            rowKey=${(each) => each.member_id}
            columns=${[
              { id: "client", label: "Client", isHeader: true, className: "name", render: (each) => html`${each.client_id}${each.instance_id === null ? "" : html` <span class="dim">static: ${each.instance_id}</span>`}` },
              { id: "host", label: "Host", render: (each) => html`${each.client_host}${each.rack ? ` (rack ${each.rack})` : ""}` },
              { id: "assignment", label: "Reads", className: "name", render: (each) => assigned(each.assignment) },
              { id: "lag", label: "Lag", align: "right", render: (each) => count(each.lag) },
              { id: "id", label: "Member id", isWide: true, className: "name dim", render: (each) => each.member_id },
            ]}
          />`
        : html`<${Empty} title="Nobody is in the group now">Its committed offsets stay until they expire.<//>`}
    <//>
    <${Rebalances} data=${data} />
  `;
}

function assigned(partitions) {
  const parts = Object.entries(partitions).map(([topic, numbers]) => `${topic} ${numbers.join(", ")}`);
  return parts.join("; ") || html`<span class="dim">nothing</span>`;
}

function Rebalances({ data }) {
  const longest = Math.max(1, ...data.rebalances.map((each) => (each.join_ms ?? 0) + (each.sync_ms ?? 0)));
  const width = (ms) => ({ width: `${Math.max(ms ? 1 : 0, ((ms ?? 0) / longest) * 100)}%` });
  const advice = [...new Set(data.rebalances.map((each) => each.advice).filter(Boolean))];
  return html`<${Section} title="Rebalances">
    <${Unknown} text=${data.rebalances_unknown} />
    ${data.rebalances.length
      ? html`
          <p class="legend" aria-hidden="true"><span><span class="bar join"></span>waiting for members</span><span><span class="bar sync"></span>waiting for partitions</span></p>
          <${Table}
            caption="Rebalances, the newest first"
            rows=${data.rebalances}
            rowKey=${(each) => `${each.began_ms}-${each.generation}-${each.cause}`}
            columns=${[
              { id: "time", label: "Time", render: (each) => html`<${Time} ms=${each.began_ms} isLong />` },
              { id: "cause", label: "Cause", isHeader: true, className: "event-text", render: (each) => each.cause },
              { id: "took", label: "Took", className: "bars-cell", render: (each) => html`<span class="bars" aria-hidden="true"><span class="join" style=${width(each.join_ms)}></span><span class="sync" style=${width(each.sync_ms)}></span></span>
                <span>${each.join_ms === null ? "still lasting" : `${duration(each.join_ms)}${each.sync_ms === null ? "" : ` + ${duration(each.sync_ms)}`}`}</span>` },
              { id: "members", label: "Members", align: "right", render: (each) => count(each.members) },
              { id: "generation", label: "Generation", align: "right", isWide: true, render: (each) => count(each.generation) },
            ]}
          />
          ${advice.length > 0 && html`<h3>What to do if they happen often</h3><ul>${advice.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`}
        `
      : !data.rebalances_unknown && html`<${Empty} title="No rebalance is remembered" command=${`ottla group timeline ${quoted(data.group_id)}`}>Brokers remember the last ones since they started.<//>`}
  <//>`;
}

function seeking(group) {
  return {
    title: `Seek ${group}`,
    intro: "Moves the committed offsets. The members have to be stopped first.",
    isWide: true,
    fields: [
      { name: "to", label: "Go on from", required: true, placeholder: "@-1h", help: "start, end, an offset, -N (N before the end), or @ and a time: @2026-01-31T12:00:00Z, @-1h." },
      { name: "topics", label: "Topics", placeholder: "all that the group has committed", help: "With commas between them." },
      { name: "partitions", label: "Partitions", placeholder: "all", pattern: "[0-9, ]*" },
    ],
    request: (values, isDryRun) => ({
      method: "POST",
      path: `${path("groups", group)}/seek`,
      body: { to: values.to, topics: split(values.topics), partitions: split(values.partitions).map(Number), dry_run: isDryRun },
    }),
    verb: "Commit these offsets",
  };
}

function split(text) {
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

function deletion(group) {
  return {
    title: `Delete ${group}`,
    intro: "Deletes the group with its committed offsets. It must have no members.",
    confirm: group,
    isDangerous: true,
    request: (_, isDryRun, typed) => ({ method: "DELETE", path: path("groups", group), body: { confirm: isDryRun ? group : typed, dry_run: isDryRun } }),
    verb: "Delete the group",
    onDone: () => go("groups"),
  };
}
