// Records of a topic: read from an offset or a time on, followed live, searched, written, sent again, exported.
import { apiUrl, lines, path, Problem, session, useData } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { bytes, count } from "../lib/format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { at, hexLines, indented, steps } from "../lib/json.js";
import { setQuery, to } from "../lib/router.js";
import { announce } from "../lib/settings.js";
import { Badge, Button, Command, CopyButton, Empty, Field, Page, ProblemBox, SearchField, Time, Unknown, classNames, Loaded, Table } from "../lib/ui.js";
import { quoted, TopicTabs } from "./topic.js";

const SHOWN_MAX = 500;
// A list shows the beginning of a value; the whole value is read when a record is opened.
const LIST_VALUE_BYTES = 2048;
const FLUSH_MS = 250;
const ANNOUNCE_MS = 5000;
const HIGHLIGHT_MAX = 20_000;
const FILTER_HELP =
  "Filters know key, value, headers, topic, partition, offset and timestamp; == != < <= > >= in, and or not; len, lower, upper, text, number, starts, ends, like.";
const FORMATS = ["auto", "json", "text", "msgpack", "avro", "protobuf", "hex"];

export default function RecordsPage({ topic, query }) {
  return topic === undefined ? html`<${ChooseTopic} query=${query} />` : html`<${TopicRecords} topic=${topic} query=${query} />`;
}

/** Records belong to a topic: choose one. */
function ChooseTopic({ query }) {
  const q = query.get("q") ?? "";
  const source = useData("topics", useMemo(() => ({ q, limit: 50 }), [q]));
  return html`<${Page} title="Records" lead="Choose a topic to see its records.">
    <div class="toolbar"><${SearchField} label="Search topics" value=${q} onSearch=${(text) => setQuery({ q: text })} /></div>
    <${Loaded} source=${source}>
      ${(data) => data.items.length
        ? html`<${Table} caption="Topics" rows=${data.items} rowKey=${(each) => each.name} columns=${[
            { id: "name", label: "Topic", isHeader: true, render: (each) => html`<a class="name" href=${to(["topics", each.name, "records"])}>${each.name}</a>` },
            { id: "records", label: "Records", align: "right", render: (each) => count(each.records) },
            { id: "last", label: "Last write", render: (each) => html`<${Time} ms=${each.last_write_ms} />` },
          ]} />`
        : html`<${Empty} title="No topic here" command="ottla topic create orders -p 3">Create a topic first.<//>`}
    <//>
  <//>`;
}

/** What the URL says of the reading. */
function readingOf(query) {
  return {
    from: query.get("from") ?? "-50",
    partition: query.get("partition") ?? "",
    filter: query.get("filter") ?? "",
    key: query.get("key") ?? "auto",
    value: query.get("value") ?? "auto",
    isolation: query.get("isolation") ?? "read_committed",
    limit: query.get("limit") ?? "50",
    columns: query.get("columns") ?? "",
    isLive: query.has("live"),
  };
}

function asked(reading, more = {}) {
  return {
    from: reading.from,
    partition: reading.partition,
    filter: reading.filter,
    decode_key: reading.key,
    decode_value: reading.value,
    isolation: reading.isolation,
    limit: reading.limit,
    value_bytes: LIST_VALUE_BYTES,
    ...more,
  };
}

const idOf = (record) => `${record.partition}-${record.offset}`;

/** Read or follow; records arrive in batches, and at most SHOWN_MAX are kept. */
function useRecords(topic, reading, key) {
  const [state, setState] = useState({ records: [], progress: null, end: null, problem: null, isBusy: true });
  const [turn, setTurn] = useState(null);
  const [isPaused, setPaused] = useState(false);
  const [attempt, setAttempt] = useState(0);
  // The next offset of each partition, so that a tail goes on exactly where it was.
  const positions = useRef({});
  useEffect(() => {
    setPaused(false);
    setTurn(null);
    positions.current = {};
  }, [key]);
  useEffect(() => {
    if (isPaused) return undefined;
    const abort = new AbortController();
    const isLive = reading.isLive;
    const isResumed = isLive && Object.keys(positions.current).length > 0;
    const isMore = turn !== null;
    let waiting = [];
    let progress = null;
    let timer = 0;
    let heard = Date.now();
    let unheard = 0;
    if (!isResumed && !isMore) setState({ records: [], progress: null, end: null, problem: null, isBusy: true });
    else setState((before) => ({ ...before, problem: null, isBusy: true }));
    const flush = (more = {}) => {
      clearTimeout(timer);
      timer = 0;
      const fresh = waiting;
      const told = progress;
      waiting = [];
      setState((before) => ({
        ...before,
        // A tail has the newest on top.
        records: isLive ? [...fresh.reverse(), ...before.records].slice(0, SHOWN_MAX) : [...before.records, ...fresh].slice(-SHOWN_MAX * 10),
        progress: told ?? before.progress,
        ...more,
      }));
      if (isLive && Date.now() - heard > ANNOUNCE_MS && unheard) {
        announce(`${unheard} new records`);
        heard = Date.now();
        unheard = 0;
      }
    };
    const read = async () => {
      const query = asked(reading, {
        follow: isLive,
        from: isLive && !reading.from.startsWith("-") ? "end" : reading.from,
        positions: isResumed ? positionsText(positions.current) : isMore ? turn : "",
      });
      try {
        for await (const part of lines(`${path("topics", topic)}/records`, query, abort.signal)) {
          for (const line of part) {
            if (line.type === "record") {
              waiting.push(line);
              unheard += 1;
              advance(positions.current, String(line.partition), BigInt(line.offset) + 1n);
            } else if (line.type === "end") flush({ end: line, progress: null });
            else {
              progress = line;
              for (const [partition, offset] of Object.entries(line.positions)) advance(positions.current, partition, BigInt(offset));
            }
          }
          // A slow browser keeps the newest only.
          if (waiting.length > SHOWN_MAX && isLive) waiting.splice(0, waiting.length - SHOWN_MAX);
          if (!timer) timer = setTimeout(flush, FLUSH_MS);
        }
        flush({ isBusy: false });
      } catch (error) {
        if (abort.signal.aborted) return;
        flush({ isBusy: false, problem: error instanceof Problem ? error.details : { title: "The stream broke", detail: String(error.message ?? error) } });
      }
    };
    read();
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, turn, isPaused, attempt]);
  return {
    ...state,
    isPaused,
    pause: () => setPaused(true),
    resume: () => setPaused(false),
    retry: () => setAttempt((before) => before + 1),
    more: () => setTurn(positionsText(state.end.positions)),
  };
}

function advance(positions, partition, offset) {
  if (positions[partition] === undefined || positions[partition] < offset) positions[partition] = offset;
}

function positionsText(positions) {
  return Object.entries(positions).map(([partition, offset]) => `${partition}:${offset}`).join(",");
}

function TopicRecords({ topic, query }) {
  const reading = readingOf(query);
  const key = JSON.stringify({ ...reading, columns: "" });
  const found = useRecords(topic, reading, key);
  const [opened, setOpened] = useState(query.get("open"));
  const isHidden = session.value?.hides_records;
  const open = (id) => {
    if (reading.isLive && id !== null) found.pause();
    setOpened(id);
  };
  const actions = html`
    <${ChangeButton} kind="primary" spec=${() => production(topic)}>Produce<//>
    <${ChangeButton} spec=${() => redrive(topic)}>Redrive<//>
    <a class="button" href=${apiUrl(`${path("topics", topic)}/export`, exported(reading)).href} download>Export</a>
  `;
  return html`<${Page} title=${topic} crumbs=${[["Topics", "topics"]]} actions=${actions}>
    <${TopicTabs} topic=${topic} current="records" />
    ${isHidden
      ? html`<${Unknown} text="This console does not show records: it was started with --hide-records." />`
      : html`
          <${Controls} topic=${topic} reading=${reading} />
          <${Status} reading=${reading} found=${found} />
          <${ProblemBox} problem=${found.problem} />
          <${RecordTable} topic=${topic} reading=${reading} found=${found} opened=${opened} onOpen=${open} />
          ${!reading.isLive && found.end && found.end.reason !== "end" && html`<div class="pager"><span></span><${Button} kind="small" disabled=${found.isBusy} onClick=${found.more}>Read on<//></div>`}
        `}
    <${Command} text=${commandOf(topic, reading)} />
  <//>`;
}

function exported(reading) {
  const { value_bytes: _, limit: __, ...rest } = asked(reading);
  return rest;
}

function commandOf(topic, reading) {
  const words = ["ottla topic consume", quoted(topic), "--from", quoted(reading.from)];
  if (reading.partition) words.push("--partition", reading.partition);
  if (reading.isLive) words.push("--follow");
  return words.join(" ");
}

const STARTS = [["newest", "the newest"], ["start", "the beginning"], ["offset", "an offset"], ["time", "a time"]];

function startOf(from) {
  if (from === "start") return ["start", ""];
  if (from.startsWith("@")) return ["time", from.slice(1)];
  return /^\d+$/.test(from) ? ["offset", from] : ["newest", ""];
}

function Controls({ topic, reading }) {
  const [kind, setKind] = useState(startOf(reading.from)[0]);
  const [text, setText] = useState(startOf(reading.from)[1]);
  const [draft, setDraft] = useState(reading);
  const [hasMore, setMore] = useState(reading.key !== "auto" || reading.value !== "auto" || Boolean(reading.columns) || reading.isolation !== "read_committed");
  const source = useData(path("topics", topic));
  const numbers = source.data?.partitions.map((each) => each.partition) ?? [];
  const set = (name) => (value) => setDraft({ ...draft, [name]: value });
  const apply = (changes = {}) => {
    const next = { ...draft, ...changes };
    const from = kind === "newest" ? `-${next.limit || 50}` : kind === "start" ? "start" : kind === "time" ? `@${text || "-5m"}` : text || "0";
    setQuery({
      from: from === "-50" ? null : from,
      partition: next.partition,
      filter: next.filter,
      key: next.key === "auto" ? null : next.key,
      value: next.value === "auto" ? null : next.value,
      isolation: next.isolation === "read_committed" ? null : next.isolation,
      limit: next.limit === "50" ? null : next.limit,
      columns: next.columns,
      live: "isLive" in changes ? (changes.isLive ? "yes" : null) : null,
      open: null,
    });
  };
  const submit = (event) => {
    event.preventDefault();
    apply();
  };
  return html`<form class="card controls" onSubmit=${submit}>
    <${Field} type="select" label="From" value=${kind} onInput=${setKind} options=${STARTS} />
    ${kind === "offset" && html`<${Field} label="Offset" value=${text} onInput=${setText} inputmode="numeric" pattern="[0-9]+" placeholder="0" />`}
    ${kind === "time" && html`<${Field} label="Time" value=${text} onInput=${setText} placeholder="-5m or 2026-01-31T12:00:00Z" />`}
    <${Field} type="select" label="Partition" value=${draft.partition} onInput=${set("partition")} options=${[["", "all"], ...numbers.map((each) => [String(each), String(each)])]} />
    <${Field} type="select" label="Records" value=${draft.limit} onInput=${set("limit")} options=${["20", "50", "200", "1000"]} />
    <${Field} className="grow" label="Filter" value=${draft.filter} onInput=${set("filter")} placeholder='value["user"] == "alice" and offset > 10' />
    <div class="control-buttons">
      <button type="submit" class="button primary">Read</button>
      ${reading.isLive
        ? html`<${Button} onClick=${() => apply({ isLive: false })}>Stop the live tail<//>`
        : html`<${Button} onClick=${() => apply({ isLive: true })}>Live tail<//>`}
      <${Button} kind="quiet" aria-expanded=${hasMore} onClick=${() => setMore(!hasMore)}>${hasMore ? "Fewer options" : "More options"}<//>
    </div>
    ${hasMore &&
    html`<div class="more">
      <${Field} type="select" label="Decode keys as" value=${draft.key} onInput=${set("key")} options=${FORMATS} />
      <${Field} type="select" label="Decode values as" value=${draft.value} onInput=${set("value")} options=${FORMATS} />
      <${Field} type="select" label="Transactions" value=${draft.isolation} onInput=${set("isolation")} options=${[["read_committed", "committed records"], ["read_uncommitted", "all records"]]} />
      <${Field} className="grow" label="Columns" value=${draft.columns} onInput=${set("columns")} placeholder="value.user.id, headers.trace" help="Paths into keys, values and headers, with commas between them." />
      <p class="help grow">${FILTER_HELP}</p>
    </div>`}
  </form>`;
}

function Status({ reading, found }) {
  const { records, progress, end, isBusy, isPaused } = found;
  const skipped = progress && progress.skipped !== "0" ? `, ${count(progress.skipped)} more were too many to show` : "";
  if (reading.isLive) {
    return html`<div class="status-line">
      ${isPaused
        ? html`<${Badge} kind="warning">Paused<//><${Button} kind="small primary" onClick=${found.resume}>Go on<//>`
        : found.problem
          ? html`<${Badge} kind="broken">Stopped<//><${Button} kind="small primary" onClick=${found.retry}>Go on<//>`
          : html`<${Badge} kind="ok">Live<//><${Button} kind="small" onClick=${found.pause}>Pause<//>`}
      <span>${progress ? `${count(progress.read)} records read${skipped}` : "Waiting for records"}; the newest ${count(records.length)} are shown.</span>
    </div>`;
  }
  const why = end && { end: "up to the end", limit: "more follow", time: "the search took long: read on to continue", bytes: "much was searched: read on to continue" }[end.reason];
  return html`<div class="status-line" role="status">
    ${isBusy ? html`<span class="spinner" aria-hidden="true"></span>` : ""}
    <span>${isBusy ? `Reading${progress ? `: ${count(progress.read)} records looked at` : " …"}` : `${count(records.length)} records${end ? ` of ${count(end.read)} read` : ""}${why ? `, ${why}` : ""}`}</span>
  </div>`;
}

/** The start of a payload on one line. */
function short(payload) {
  if (payload.format === "null") return html`<span class="dim">null</span>`;
  if (payload.format === "empty") return html`<span class="dim">empty</span>`;
  const text = payload.text ?? "";
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

function columnOf(record, path) {
  const [first, ...rest] = path;
  if (first === "headers") {
    const header = record.headers.find((each) => each.name === String(rest[0]));
    return header ? header.value.text : null;
  }
  const payload = first === "key" ? record.key : first === "value" ? record.value : null;
  if (!payload) return ["offset", "partition", "timestamp_ms"].includes(first) ? String(record[first]) : null;
  return rest.length ? at(payload.text ?? "", rest) : payload.text;
}

function RecordTable({ topic, reading, found, opened, onOpen }) {
  const columns = useMemo(
    () => reading.columns.split(",").map((each) => each.trim()).filter(Boolean).slice(0, 8).map((each) => [each, steps(each)]).filter(([, path]) => path),
    [reading.columns],
  );
  if (!found.records.length) {
    if (found.isBusy || found.problem) return null;
    return html`<${Empty} title="No records" command=${`echo hello | ottla topic produce ${quoted(topic)}`}>
      ${reading.filter ? "No record matches the filter in what was read." : "There is nothing from here on. Write a record, or look from the beginning."}
    <//>`;
  }
  return html`<div class="table-scroll records" role="group" aria-label="Records" tabindex="0">
    <table>
      <caption class="sr-only">Records of ${topic}</caption>
      <thead>
        <tr>
          <th scope="col" class="right">Partition</th><th scope="col" class="right">Offset</th><th scope="col">Time</th><th scope="col">Key</th>
          ${columns.map(([label]) => html`<th key=${label} scope="col">${label}</th>`)}<th scope="col">Value</th>
        </tr>
      </thead>
      <tbody>
        ${found.records.map(
          (record) => html`<${RecordRow} key=${idOf(record)} topic=${topic} record=${record} columns=${columns} isOpen=${opened === idOf(record)} onOpen=${onOpen} reading=${reading} />`,
        )}
      </tbody>
    </table>
  </div>`;
}

function RecordRow({ topic, record, columns, isOpen, onOpen, reading }) {
  const id = idOf(record);
  return html`
    <tr class=${classNames("record", isOpen && "open")}>
      <td class="right">${record.partition}</td>
      <th scope="row" class="right number">
        <button type="button" class="link" aria-expanded=${isOpen} onClick=${() => onOpen(isOpen ? null : id)}>${record.offset}</button>
      </th>
      <td><${Time} ms=${record.timestamp_ms} /></td>
      <td class="payload">${short(record.key)}</td>
      ${columns.map(([label, path]) => html`<td key=${label} class="payload">${columnOf(record, path) ?? html`<span class="dim">–</span>`}</td>`)}
      <td class="payload value">${short(record.value)}</td>
    </tr>
    ${isOpen && html`<tr class="detail"><td colspan=${5 + columns.length}><${RecordDetail} topic=${topic} record=${record} reading=${reading} /></td></tr>`}
  `;
}

function RecordDetail({ topic, record, reading }) {
  const [shape, setShape] = useState("decoded");
  const [size, setSize] = useState(65_536);
  const [full, setFull] = useState(record);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      const query = asked(reading, {
        from: record.offset,
        partition: record.partition,
        filter: "",
        limit: 1,
        value_bytes: size,
        isolation: "read_uncommitted",
        ...(shape === "hex" ? { decode_key: "hex", decode_value: "hex" } : {}),
      });
      try {
        for await (const part of lines(`${path("topics", topic)}/records`, query, abort.signal)) {
          const line = part.find((each) => each.type === "record" && each.offset === record.offset);
          if (line) setFull(line);
        }
      } catch (error) {
        if (!abort.signal.aborted) setProblem(error instanceof Problem ? error.details : { title: String(error) });
      }
    };
    read();
    return () => abort.abort();
  }, [shape, size]);
  const link = new URL(to(["topics", topic, "records"], { from: record.offset, partition: record.partition, limit: "20", open: idOf(record) }), document.baseURI).href;
  return html`<div class="record-detail">
    <div class="actions">
      <span class="segmented" role="group" aria-label="Show as">
        ${[["decoded", "Decoded"], ["raw", "As it is"], ["hex", "Hex"]].map(
          ([id, label]) => html`<button key=${id} type="button" aria-pressed=${shape === id} onClick=${() => setShape(id)}>${label}</button>`,
        )}
      </span>
      <${CopyButton} text=${full.value.text ?? ""} label="Copy value" />
      <${CopyButton} text=${link} label="Copy link" />
      <${ChangeButton} kind="small" spec=${() => resending(topic, record)}>Resend<//>
    </div>
    <${ProblemBox} problem=${problem} />
    <p class="dim">Partition ${record.partition}, offset ${record.offset}, <${Time} ms=${record.timestamp_ms} isLong hasMs /> <span class="number">(${record.timestamp_ms})</span></p>
    <h3>Key</h3>
    <${PayloadView} payload=${full.key} shape=${shape} />
    <h3>Value</h3>
    <${PayloadView} payload=${full.value} shape=${shape} />
    ${full.value.is_truncated && size < 8_388_608 && html`<p><${Button} kind="small" onClick=${() => setSize(8_388_608)}>Load all ${bytes(full.value.size)}<//></p>`}
    ${full.headers.length > 0 &&
    html`<h3>Headers</h3>
      <${Table} caption="Headers" rows=${full.headers} columns=${[
        { id: "name", label: "Name", isHeader: true, className: "name", render: (each) => each.name },
        { id: "value", label: "Value", className: "payload value", render: (each) => short(each.value) },
        { id: "format", label: "Decoded as", render: (each) => each.value.format },
      ]} />`}
  </div>`;
}

function PayloadView({ payload, shape }) {
  if (payload.format === "null") return html`<p class="dim">null: there are no bytes${shape === "decoded" ? "; in a compacted topic this deletes the key" : ""}</p>`;
  const text = payload.text ?? "";
  const isJson = ["json", "msgpack", "avro", "protobuf", "internal"].includes(payload.format);
  let content = text;
  if (payload.format === "hex") content = hexLines(text);
  else if (shape === "decoded" && isJson) {
    const parts = text.length <= HIGHLIGHT_MAX * 10 ? indented(text) : null;
    if (parts) content = text.length <= HIGHLIGHT_MAX ? parts.map(([kind, part]) => (kind ? html`<span class=${kind}>${part}</span>` : part)) : parts.map(([, part]) => part).join("");
  }
  const schema = payload.schema_id === undefined || payload.schema_id === null ? "" : `, schema ${payload.schema_id}`;
  return html`<p class="dim">${bytes(payload.size)}, ${payload.format}${schema}${payload.note ? ` (${payload.note})` : ""}${payload.is_truncated ? "; only the beginning is shown" : ""}</p>
    <pre class="payload-view" tabindex="0" aria-label="Content">${content}</pre>`;
}

function production(topic) {
  return {
    title: `Produce to ${topic}`,
    isWide: true,
    fields: [
      { name: "key", label: "Key", placeholder: "none" },
      { name: "value", label: "Value", type: "textarea", rows: 6 },
      { name: "headers", label: "Headers", type: "textarea", rows: 2, placeholder: "trace=abc", help: "One header per line: name=value." },
      { name: "partition", label: "Partition", type: "number", min: 0, placeholder: "the key decides" },
      { name: "isNull", label: "No value: a tombstone, which deletes the key in a compacted topic", type: "check", value: false },
    ],
    request: (values, isDryRun) => ({
      method: "POST",
      path: `${path("topics", topic)}/records`,
      body: {
        dry_run: isDryRun,
        key: values.key === "" ? {} : { text: values.key },
        value: values.isNull ? {} : { text: values.value },
        headers: values.headers.split("\n").filter((line) => line.trim()).map((line) => {
          const [name, ...rest] = line.split("=");
          return { name: name.trim(), value: { text: rest.join("=") } };
        }),
        partition: values.partition === "" ? null : Number(values.partition),
      },
    }),
    verb: "Write the record",
  };
}

function resending(topic, record) {
  return {
    title: `Resend offset ${record.offset}`,
    intro: `Sends key, value and headers of partition ${record.partition}, offset ${record.offset} again, byte for byte.`,
    fields: [{ name: "target", label: "To topic", value: topic, required: true }],
    request: (values, isDryRun) => ({ method: "POST", path: `${path("topics", topic)}/resend`, body: { partition: record.partition, offset: record.offset, target_topic: values.target === topic ? null : values.target, dry_run: isDryRun } }),
    verb: "Resend",
  };
}

function redrive(topic) {
  return {
    title: `Redrive ${topic}`,
    intro: "Sends the records of a dead-letter topic back: to a topic, or to the topic that a header of each record names.",
    isWide: true,
    fields: [
      { name: "target", label: "To topic", placeholder: "orders" },
      { name: "header", label: "Or to the topic in the header", placeholder: "x-original-topic" },
      { name: "start", label: "From", value: "start", required: true },
      { name: "filter", label: "Only records with", placeholder: 'headers["error"] == "timeout"' },
      { name: "limit", label: "At most", type: "number", value: 1000, min: 1, max: 10_000 },
    ],
    request: (values, isDryRun) => ({
      method: "POST",
      path: `${path("topics", topic)}/redrive`,
      body: { target_topic: values.target || null, target_header: values.header || null, start: values.start, filter: values.filter, limit: Number(values.limit), dry_run: isDryRun },
    }),
    verb: "Redrive",
  };
}
