// The API of the console: requests, problems, and data that is read again while it is shown.
import { signal, useCallback, useEffect, useRef, useState } from "./html.js";

export class Problem extends Error {
  constructor(details) {
    super(details.title);
    this.details = details;
    this.status = details.status;
  }
}

/** Who uses the console, and what it may do; it comes with the page. */
export const session = signal(JSON.parse(document.querySelector('meta[name="ottla-session"]').content));

export function apiUrl(path, query = {}) {
  const url = new URL(`api/v1/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "") url.searchParams.append(name, String(each));
    }
  }
  return url;
}

/** Join names to a path of the API. */
export function path(...names) {
  return names.map((name) => encodeURIComponent(name)).join("/");
}

/** Send a request; Problem if it is refused, or nobody answers. */
export async function send(method, where, { query, body, abort } = {}) {
  const headers = { Accept: "application/json, application/x-ndjson" };
  if (method !== "GET") headers["X-Ottla-Console"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(apiUrl(where, query), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: abort,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      status: 0,
      title: "The console does not answer",
      detail: "Its process has stopped, or the network to it is broken.",
      advice: "Start it again: ottla console",
    });
  }
  if (response.ok) return response;
  let details = { status: response.status, title: `HTTP ${response.status}`, detail: "" };
  try {
    details = { ...details, ...(await response.json()) };
  } catch {
    // A proxy may answer with a page of its own.
  }
  if (response.status === 401 && session.value?.user) session.value = { ...session.value, user: null };
  throw new Problem(details);
}

export async function get(where, query, abort) {
  return (await send("GET", where, { query, abort })).json();
}

export async function change(method, where, body) {
  return (await send(method, where, { body })).json();
}

/**
 * Read data, and again every `every` milliseconds while the page is visible. What was read last stays until there is
 * something newer, also if a request fails: then `problem` says why the data is old.
 */
export function useData(where, query = {}, { every = 0 } = {}) {
  const key = where === null ? null : `${where} ${JSON.stringify(query)}`;
  const [state, setState] = useState({ key: null, data: null, problem: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef({ where, query });
  latest.current = { where, query };
  useEffect(() => {
    if (key === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const read = async () => {
      try {
        const data = await get(latest.current.where, latest.current.query, abort.signal);
        setState({ key, data, problem: null });
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = error instanceof Problem ? error.details : { status: 0, title: String(error), detail: "" };
        setState((before) => ({ key, data: before.key === key ? before.data : null, problem }));
      }
      if (every && !abort.signal.aborted) timer = setTimeout(again, every);
    };
    const again = () => {
      if (document.hidden) timer = setTimeout(again, every);
      else read();
    };
    read();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, every, turn]);
  const reload = useCallback(() => setTurn((before) => before + 1), []);
  const isCurrent = state.key === key;
  return {
    data: isCurrent ? state.data : null,
    // While the next page of a list is read, the one before stays visible.
    shown: state.data,
    problem: isCurrent ? state.problem : null,
    isLoading: !isCurrent || (state.data === null && state.problem === null),
    reload,
  };
}

/** Yield the lines of an NDJSON answer as objects, in the arrays in which they arrive. */
export async function* lines(where, query, abort) {
  const response = await send("GET", where, { query, abort });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      const found = parts.filter(Boolean).map((line) => JSON.parse(line));
      for (const line of found) if (line.type === "error") throw new Problem(line.problem);
      if (found.length) yield found;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
