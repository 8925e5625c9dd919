// The parts that pages are made of.
import { count, absolute, asDate, duration, relative, zoneName } from "./format.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "./html.js";
import { to } from "./router.js";
import { announce, now, zone } from "./settings.js";

/** A page: its heading gets the focus when a user comes to it, so that screen readers begin there. */
export function Page({ title, crumbs = [], lead, actions, children }) {
  const heading = useRef(null);
  useLayoutEffect(() => {
    document.title = `${title} · Ottla`;
  }, [title]);
  useEffect(() => {
    if (isFirstPage) isFirstPage = false;
    else heading.current?.focus({ preventScroll: true });
  }, []);
  return html`
    <div class="page">
      <div class="page-head">
        <div class="page-title">
          ${crumbs.length > 0 &&
          html`<nav class="crumbs" aria-label="Breadcrumb">
            <ol>
              ${crumbs.map(([label, href]) => html`<li key=${href}><a href=${href}>${label}</a></li>`)}
            </ol>
          </nav>`}
          <h1 tabindex="-1" ref=${heading}>${title}</h1>
          ${lead && html`<p class="lead">${lead}</p>`}
        </div>
        ${actions && html`<div class="actions">${actions}</div>`}
      </div>
      ${children}
    </div>
  `;
}
let isFirstPage = true;

export function Section({ title, actions, children, id }) {
  const own = useId();
  return html`
    <section class="card" aria-labelledby=${id ?? own}>
      <div class="card-head">
        <h2 id=${id ?? own}>${title}</h2>
        ${actions && html`<div class="actions">${actions}</div>`}
      </div>
      ${children}
    </section>
  `;
}

export function Button({ kind = "", icon, children, ...rest }) {
  return html`<button type="button" class=${`button ${kind}`} ...${rest}>
    ${icon && html`<span aria-hidden="true">${icon}</span>`}${children}
  </button>`;
}

export function LinkButton({ kind = "", children, ...rest }) {
  return html`<a class=${`button ${kind}`} ...${rest}>${children}</a>`;
}

const MARKS = { ok: "●", warning: "▲", broken: "✕", neutral: "○", info: "◆" };

/** A state, told by colour, by a mark and in words. */
export function Badge({ kind = "neutral", children }) {
  return html`<span class=${`badge ${kind}`}><span aria-hidden="true" class="mark">${MARKS[kind]}</span>${children}</span>`;
}

const STATE_KINDS = { ok: "ok", lagging: "warning", offline: "broken" };
const STATE_WORDS = { ok: "In sync", lagging: "Lagging", offline: "No leader" };

export function StateBadge({ state }) {
  return html`<${Badge} kind=${STATE_KINDS[state]}>${STATE_WORDS[state]}<//>`;
}

const GROUP_KINDS = { stable: "ok", empty: "neutral", dead: "neutral", preparing: "warning", completing: "warning" };

export function GroupBadge({ state }) {
  const kind = Object.entries(GROUP_KINDS).find(([start]) => state.toLowerCase().startsWith(start))?.[1] ?? "info";
  return html`<${Badge} kind=${kind}>${state}<//>`;
}

const PROGRESS_KINDS = { caught_up: "ok", catching_up: "info", falling_behind: "warning", stopped: "broken" };
const PROGRESS_WORDS = { caught_up: "Caught up", catching_up: "Catching up", falling_behind: "Falls behind", stopped: "Stopped" };
const PROGRESS_TITLES = {
  caught_up: "Everything is committed",
  catching_up: "It reads at least as fast as records are written",
  falling_behind: "It reads more slowly than records are written",
  stopped: "It has committed nothing for a while, or nobody reads",
};

/** Whether a group reads; at the first look that is not known. */
export function ProgressBadge({ progress, note }) {
  if (!progress) return html`<span class="dim" title="Known after a few seconds">–</span>`;
  return html`<span title=${PROGRESS_TITLES[progress]}><${Badge} kind=${PROGRESS_KINDS[progress]}>${PROGRESS_WORDS[progress]}${note ? ` ${note}` : ""}<//></span>`;
}

/** How old the first unread record is. */
export function lagTime(ms) {
  return ms === null ? "–" : ms === 0 ? "none" : duration(ms);
}

/** A time: relative first, absolute beside it or in its title. */
export function Time({ ms, isLong = false, hasMs = false }) {
  const date = asDate(ms);
  if (date === null) return html`<span class="dim">${ms === null || ms === undefined || String(ms) === "-1" ? "–" : String(ms)}</span>`;
  const text = absolute(date, zone.value, { hasMs });
  const full = `${text} ${zoneName(zone.value)}`;
  const iso = new Date(date).toISOString();
  const ago = relative(date, now.value);
  return isLong
    ? html`<time datetime=${iso} title=${`${full}, ${ago}`} class="nowrap">${text} <span class="dim">${ago}</span></time>`
    : html`<time datetime=${iso} title=${full} class="nowrap">${ago}</time>`;
}

export function CopyButton({ text, label = "Copy" }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      announce("Copied");
      setTimeout(() => setDone(false), 1500);
    } catch {
      announce("The browser does not allow copying here");
    }
  };
  return html`<button type="button" class="button small quiet" onClick=${copy}>${isDone ? "Copied" : label}</button>`;
}

/** The command that does the same. */
export function Command({ text, label = "The same on the command line" }) {
  if (!text) return null;
  return html`<div class="command">
    <span class="command-label">${label}</span>
    <div class="command-line"><code>${text}</code><${CopyButton} text=${text} /></div>
  </div>`;
}

export function Loading({ label = "Loading" }) {
  return html`<div class="loading" role="status"><span class="spinner" aria-hidden="true"></span>${label} …</div>`;
}

export function ProblemBox({ problem, onRetry, isOld = false }) {
  if (!problem) return null;
  return html`<div class="notice broken" role="alert">
    <span class="mark" aria-hidden="true">✕</span>
    <div>
      <strong>${problem.title}</strong>
      ${problem.detail && html`<p>${problem.detail}</p>`}
      ${problem.advice && html`<p>${problem.advice}</p>`}
      ${problem.code && html`<p class="dim">${problem.code}</p>`}
      ${isOld && html`<p>What you see below is older.</p>`}
    </div>
    ${onRetry && html`<${Button} kind="small" onClick=${onRetry}>Try again<//>`}
  </div>`;
}

/** Brokers whose part of an answer is missing. */
export function Missing({ missing }) {
  if (!missing?.length) return null;
  const text = missing.map((each) => `broker ${each.broker_id}: ${each.error}`).join("; ");
  return html`<div class="notice warning" role="status">
    <span class="mark" aria-hidden="true">▲</span>
    <div><strong>Parts are missing.</strong> Not every broker answered: ${text}.</div>
  </div>`;
}

/** Why there is nothing to show, though nothing is wrong. */
export function Unknown({ text }) {
  if (!text) return null;
  const sentence = `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
  return html`<div class="notice info"><span class="mark" aria-hidden="true">◆</span><div>${sentence}</div></div>`;
}

export function Empty({ title, children, command }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${children && html`<p>${children}</p>`}
    ${command && html`<${Command} text=${command} label="Try it" />`}
  </div>`;
}

/** Data, or why there is none. `children` is called with the data; without `hasMissing` it says itself who is missing. */
export function Loaded({ source, hasMissing = true, children }) {
  const { data, problem, reload } = source;
  if (data === null || data === undefined) {
    return problem ? html`<${ProblemBox} problem=${problem} onRetry=${reload} />` : html`<${Loading} />`;
  }
  return html`<${ProblemBox} problem=${problem} onRetry=${reload} isOld /> ${hasMissing && html`<${Missing} missing=${data.missing} />`}
    ${children(data)}`;
}

/**
 * A table. Columns: { id, label, render(row), align: "right", isHeader, isWide: left out on small screens, sort: the
 * field to sort by }. `sort` is the current order such as "-size".
 */
export function Table({ caption, columns, rows, rowKey, sort, onSort, rowClass }) {
  const shownColumns = columns.filter(Boolean);
  const header = (column) => {
    const classes = classNames(column.align === "right" && "right", column.isWide && "wide-only");
    if (!column.sort || !onSort) return html`<th key=${column.id} scope="col" class=${classes}>${column.label}</th>`;
    const isOwn = sort === column.sort || sort === `-${column.sort}`;
    const isDown = sort === `-${column.sort}`;
    const first = column.align === "right" ? `-${column.sort}` : column.sort;
    const next = !isOwn ? first : isDown ? column.sort : `-${column.sort}`;
    return html`<th key=${column.id} scope="col" class=${classes} aria-sort=${isOwn ? (isDown ? "descending" : "ascending") : undefined}>
      <button type="button" class="sort" onClick=${() => onSort(next)}>
        ${column.label}<span aria-hidden="true" class=${isOwn ? "arrow" : "arrow faint"}>${isOwn ? (isDown ? "↓" : "↑") : "↕"}</span>
      </button>
    </th>`;
  };
  return html`<div class="table-scroll" role="group" aria-label=${caption} tabindex="0">
    <table>
      <caption class="sr-only">${caption}</caption>
      <thead><tr>${shownColumns.map(header)}</tr></thead>
      <tbody>
        ${rows.map(
          (row, index) => html`<tr key=${rowKey ? rowKey(row) : index} class=${rowClass ? rowClass(row) : ""}>
            ${shownColumns.map((column) => {
              const classes = classNames(column.align === "right" && "right", column.isWide && "wide-only", column.className);
              return column.isHeader
                ? html`<th key=${column.id} scope="row" class=${classes}>${column.render(row)}</th>`
                : html`<td key=${column.id} class=${classes}>${column.render(row)}</td>`;
            })}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function classNames(...names) {
  return names.filter(Boolean).join(" ");
}

export function Tiles({ items }) {
  return html`<dl class="tiles">
    ${items.filter(Boolean).map(
      ({ label, value, note, kind, title }) => html`<div key=${label} class=${classNames("tile", kind)}>
        <dt>${label}</dt>
        <dd><span class="tile-value" title=${title}>${value}</span>${note && html`<span class="tile-note">${note}</span>`}</dd>
      </div>`,
    )}
  </dl>`;
}

/** A name of something that has a page; names are text, whatever is in them. */
export function TopicLink({ name }) {
  return html`<a href=${to(["topics", name])} class="name">${name}</a>`;
}

export function GroupLink({ id }) {
  return html`<a href=${to(["groups", id])} class="name">${id === "" ? "(empty id)" : id}</a>`;
}

export function BrokerLink({ id }) {
  return id === null || id === undefined ? html`<span class="dim">none</span>` : html`<a href=${to(["brokers", id])}>${id}</a>`;
}

/** A field with its label. `type` is that of an input, or "select", "textarea", "check". */
export function Field({ label, help, type = "text", value, onInput, options, className, isLabelHidden, ...rest }) {
  const id = useId();
  const described = help ? `${id}-help` : undefined;
  const set = (event) => onInput(type === "check" ? event.target.checked : event.target.value);
  if (type === "check") {
    return html`<div class=${classNames("field check", className)}>
      <input id=${id} type="checkbox" checked=${value} onChange=${set} aria-describedby=${described} ...${rest} />
      <label for=${id}>${label}</label>${help && html`<p id=${described} class="help">${help}</p>`}
    </div>`;
  }
  let control;
  if (type === "select") {
    control = html`<select id=${id} value=${value} onChange=${set} aria-describedby=${described} ...${rest}>
      ${options.map((each) => {
        const [key, text] = Array.isArray(each) ? each : [each, each];
        return html`<option key=${key} value=${key} selected=${String(key) === String(value)}>${text}</option>`;
      })}
    </select>`;
  } else if (type === "textarea") {
    control = html`<textarea id=${id} value=${value} onInput=${set} aria-describedby=${described} spellcheck="false" ...${rest}></textarea>`;
  } else {
    control = html`<input id=${id} type=${type} value=${value} onInput=${set} aria-describedby=${described} autocomplete="off" spellcheck="false" ...${rest} />`;
  }
  return html`<div class=${classNames("field", className)}>
    <label for=${id} class=${isLabelHidden ? "sr-only" : ""}>${label}</label>${control}
    ${help && html`<p id=${described} class="help">${help}</p>`}
  </div>`;
}

/** A field that waits until a user stops typing. */
export function SearchField({ label, value, onSearch, placeholder, hasLabel = false }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  const typed = (next) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSearch(next), 250);
  };
  return html`<${Field} type="search" className=${hasLabel ? "search inline" : "search"} isLabelHidden=${!hasLabel} label=${label} value=${text} onInput=${typed} placeholder=${placeholder ?? label} />`;
}

/** Tabs that are links, because every view has a URL. */
export function Tabs({ label, items, current }) {
  return html`<nav class="tabs" aria-label=${label}>
    <ul>
      ${items.map(
        ([id, text, href]) => html`<li key=${id}><a href=${href} aria-current=${id === current ? "page" : undefined}>${text}</a></li>`,
      )}
    </ul>
  </nav>`;
}

/** How full something is; a full one is bad, unless it is neutral. */
export function Meter({ share, label, isNeutral = false }) {
  if (share === null) return html`<span class="dim">–</span>`;
  const kind = isNeutral ? "ok" : share > 0.95 ? "broken" : share > 0.85 ? "warning" : "ok";
  return html`<span class=${`meter ${kind}`} role="img" aria-label=${label} title=${label}><span style=${{ width: `${Math.min(100, share * 100)}%` }}></span></span>`;
}

/** The pages of a list, which knows only what comes next. */
export function Pager({ total, shown, next, isFirst, onFirst, onBack, onNext, noun = "items" }) {
  return html`<div class="pager">
    <span role="status">${count(shown)} of ${count(total)} ${noun}</span>
    <span class="actions">
      ${!isFirst && html`<${Button} kind="small" onClick=${onFirst}>First page<//>`}
      ${!isFirst && onBack && html`<${Button} kind="small" onClick=${onBack}>Back<//>`}
      ${next !== null && html`<${Button} kind="small" onClick=${onNext}>Next page<//>`}
    </span>
  </div>`;
}

/** The cursors of a list whose pages are found by the last name of the page before; `after` stands in the URL. */
export function usePages(after, setAfter) {
  const stack = useRef([]);
  return {
    isFirst: !after,
    onFirst: () => {
      stack.current = [];
      setAfter(null);
    },
    onBack: stack.current.length ? () => setAfter(stack.current.pop() || null) : null,
    onNext: (next) => {
      stack.current.push(after ?? "");
      setAfter(next);
    },
  };
}

export function Dialog({ title, onClose, children, isWide }) {
  const element = useRef(null);
  const id = useId();
  useEffect(() => {
    const dialog = element.current;
    if (!dialog.open) dialog.showModal();
    return () => dialog.close();
  }, []);
  return html`<dialog ref=${element} aria-labelledby=${id} class=${isWide ? "wide" : ""} onCancel=${(event) => {
    event.preventDefault();
    onClose();
  }}>
    <div class="dialog-head">
      <h2 id=${id}>${title}</h2>
      <button type="button" class="button quiet small" aria-label="Close" onClick=${onClose}>✕</button>
    </div>
    ${children}
  </dialog>`;
}
