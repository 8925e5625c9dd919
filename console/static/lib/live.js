// The state of the cluster as it changes: one stream of events per visible tab.
//
// Browsers allow six connections to a host over all tabs, so a hidden tab gives its stream back.
import { apiUrl, get, session } from "./api.js";
import { effect, signal, useEffect } from "./html.js";

const HISTORY_MAX = 300;
const EVERY_MS = 2000;

/** What was told last, by name: overview, brokers, timeline, topic:NAME, group:ID. */
export const told = signal({});
/** Why a part cannot be read, by name. */
export const problems = signal({});
/** "opening", "open" or "lost". */
export const streamState = signal("opening");
/** When the stream said something last. */
export const toldAt = signal(0);
/** Rates of the cluster over the last minutes: [times in seconds, records/s, bytes in/s, bytes out/s]. */
export const history = signal([[], [], [], []]);

const wanted = signal({ overview: 1 });
let source = null;
let opened = "";

/** Watch a part of the cluster while a component is shown; returns what was told, or null. */
export function useWatch(name) {
  useEffect(() => {
    const { [name]: count = 0, ...rest } = wanted.value;
    wanted.value = { ...rest, [name]: count + 1 };
    return () => {
      const { [name]: before = 1, ...others } = wanted.value;
      wanted.value = before > 1 ? { ...others, [name]: before - 1 } : others;
    };
  }, [name]);
  return { data: told.value[name] ?? null, problem: told.value[name] ? null : (problems.value[name] ?? null) };
}

function names() {
  return Object.keys(wanted.value).sort();
}

function close() {
  source?.close();
  source = null;
  opened = "";
}

function open() {
  const watch = names();
  const key = JSON.stringify(watch);
  if (source && opened === key && source.readyState !== EventSource.CLOSED) return;
  close();
  opened = key;
  const stream = new EventSource(apiUrl("events", { watch, every_ms: EVERY_MS }));
  source = stream;
  stream.onopen = () => {
    streamState.value = "open";
  };
  stream.onerror = async () => {
    if (source !== stream) return;
    streamState.value = "lost";
    try {
      const found = await get("session");
      if (found.needs_login && !found.user) session.value = found;
    } catch {
      // The console itself does not answer; try again below.
    }
    if (stream.readyState === EventSource.CLOSED && source === stream) {
      close();
      setTimeout(follow, EVERY_MS);
    }
  };
  const full = (kind) => (kind.includes(":") ? kind : watch.find((name) => name === kind || name.startsWith(`${kind}:`)));
  for (const kind of ["overview", "brokers", "timeline", "topic", "group"]) {
    stream.addEventListener(kind, (event) => {
      const data = JSON.parse(event.data);
      const name = kind === "topic" ? `topic:${data.name}` : kind === "group" ? `group:${data.group_id}` : full(kind);
      streamState.value = "open";
      toldAt.value = Date.now();
      told.value = { ...keptOf(watch), [name]: data };
      if (problems.value[name]) {
        const { [name]: _, ...rest } = problems.value;
        problems.value = rest;
      }
    });
  }
  stream.addEventListener("problem", (event) => {
    const data = JSON.parse(event.data);
    if (data.watch) problems.value = { ...problems.value, [data.watch]: data.problem };
  });
}

/** Forget what is no longer watched, so that a long visit does not gather every topic. */
function keptOf(watch) {
  return Object.fromEntries(Object.entries(told.value).filter(([name]) => watch.includes(name)));
}

function follow() {
  const isAllowed = session.value.user || !session.value.needs_login;
  if (document.hidden || !isAllowed) close();
  else open();
}

let planned = 0;
effect(() => {
  // A page that is left and the next one both change the list: open one stream for both.
  void wanted.value;
  void session.value;
  clearTimeout(planned);
  planned = setTimeout(follow, 0);
});
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", close);

setInterval(() => {
  const overview = told.value.overview;
  if (!overview || streamState.value !== "open" || document.hidden) return;
  const { records_in_per_s: records, bytes_in_per_s: bytesIn, bytes_out_per_s: bytesOut } = overview.rates;
  const point = [Date.now() / 1000, records, bytesIn, bytesOut];
  history.value = history.value.map((series, index) => [...series.slice(1 - HISTORY_MAX), point[index] ?? null]);
}, EVERY_MS);
