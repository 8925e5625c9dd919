// Options of a topic, of a broker or of all brokers: the value, where it comes from, what it means, and a change.
import { path, useData } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { count } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { told } from "../lib/live.js";
import { go, setQuery, to } from "../lib/router.js";
import { Badge, Command, Empty, Field, Loaded, Page, SearchField } from "../lib/ui.js";
import { quoted, TopicTabs } from "./topic.js";

export default function OptionsPage({ kind, name, query }) {
  const isChanged = query.has("changed");
  const q = query.get("q") ?? "";
  const source = useData(path("options", kind, name), useMemo(() => ({ changed: isChanged }), [isChanged]));
  const title = kind === "topic" ? name : name === "all" ? "Options of all brokers" : `Options of broker ${name}`;
  const crumbs = kind === "topic" ? [["Topics", "topics"]] : name === "all" ? [] : [["Brokers", "brokers"], [`Broker ${name}`, to(["brokers", name])]];
  const brokers = told.value.overview?.brokers ?? [];
  return html`<${Page} title=${title} crumbs=${crumbs}>
    ${kind === "topic" && html`<${TopicTabs} topic=${name} current="options" />`}
    <div class="toolbar">
      ${kind === "broker" &&
      html`<${Field} type="select" className="inline" label="Of" value=${name} onInput=${(value) => go(to(["options", value]))}
        options=${[["all", "all brokers (dynamic)"], ...new Set([...brokers.map((each) => String(each.broker_id)), ...(name === "all" ? [] : [name])])].map((each) => (Array.isArray(each) ? each : [each, `broker ${each}`]))} />`}
      <${SearchField} label="Search options" value=${q} onSearch=${(text) => setQuery({ q: text })} />
      <${Field} type="check" label="Only what differs from the default" value=${isChanged} onInput=${(value) => setQuery({ changed: value ? "yes" : null })} />
    </div>
    <${Loaded} source=${source}>${(data) => html`<${List} data=${data} q=${q} kind=${kind} name=${name} reload=${source.reload} />`}<//>
    <${Command} text=${`ottla config list ${kind} ${quoted(name)}`} />
  <//>`;
}

function List({ data, q, kind, name, reload }) {
  const wanted = q.trim().toLowerCase();
  const items = data.items.filter((each) => `${each.name} ${each.documentation ?? ""}`.toLowerCase().includes(wanted));
  const [opened, setOpened] = useState(null);
  if (!items.length) {
    return html`<${Empty} title=${kind === "broker" && name === "all" && !wanted ? "No option is set for all brokers" : "No option matches"}
      command=${kind === "broker" ? "ottla config set broker all log.retention.hours=24" : undefined}>
      ${kind === "broker" && name === "all" ? "Options that are set here hold for every broker, at once and after a restart. Choose a broker above to see all of its options." : ""}
    <//>`;
  }
  return html`<p class="dim" role="status">${count(items.length)} of ${count(data.items.length)} options</p>
    <div class="table-scroll" role="group" aria-label="Options" tabindex="0">
      <table>
        <caption class="sr-only">Options</caption>
        <thead><tr><th scope="col">Option</th><th scope="col">Value</th><th scope="col">From</th><th scope="col">Change</th></tr></thead>
        <tbody>
          ${items.map((each) => html`<${OptionRow} key=${each.name} option=${each} isOpen=${opened === each.name} onOpen=${setOpened} kind=${kind} name=${name} reload=${reload} />`)}
        </tbody>
      </table>
    </div>`;
}

function shownValue(option, value) {
  if (option.is_sensitive) return html`<span class="dim">(secret)</span>`;
  if (value === null || value === undefined) return html`<span class="dim">not set</span>`;
  return value === "" ? html`<span class="dim">empty</span>` : html`<code>${value}</code>`;
}

function OptionRow({ option, isOpen, onOpen, kind, name, reload }) {
  return html`
    <tr class=${option.is_default ? "" : "changed"}>
      <th scope="row"><button type="button" class="link name" aria-expanded=${isOpen} onClick=${() => onOpen(isOpen ? null : option.name)}>${option.name}</button></th>
      <td class="value-cell">${shownValue(option, option.value)}${!option.is_default && option.default_value !== null && html` <span class="dim">default <del>${option.default_value}</del></span>`}</td>
      <td><${Badge} kind=${option.is_default ? "neutral" : "info"}>${option.source}<//></td>
      <td class="row-actions">
        ${option.is_read_only
          ? html`<span class="dim" title="It is read when a broker starts">read-only</span>`
          : html`<${ChangeButton} kind="small" spec=${() => setting(option, kind, name, reload)}>Set<span class="sr-only"> ${option.name}</span><//>
              ${/topic|dynamic/.test(option.source) && html` <${ChangeButton} kind="small" spec=${() => unsetting(option, kind, name, reload)}>Unset<span class="sr-only"> ${option.name}</span><//>`}`}
      </td>
    </tr>
    ${isOpen &&
    html`<tr class="detail"><td colspan="4">
      <p>${option.documentation ?? "The broker has no documentation of it."}</p>
      ${option.synonyms.length > 0 &&
      html`<p class="dim">Where the value comes from, the strongest first:</p>
        <ol class="synonyms">${option.synonyms.map((each, index) => html`<li key=${index}><${Badge} kind=${index ? "neutral" : "info"}>${each.source}<//> <code>${each.name}</code> = ${shownValue(option, each.value)}</li>`)}</ol>`}
    </td></tr>`}
  `;
}

function setting(option, kind, name, reload) {
  return {
    title: `Set ${option.name}`,
    intro: option.documentation ?? "",
    fields: [{ name: "value", label: "Value", value: option.is_sensitive ? "" : (option.value ?? "") }],
    request: (values, isDryRun) => ({ method: "PATCH", path: path("options", kind, name), body: { set: { [option.name]: values.value }, dry_run: isDryRun } }),
    verb: "Set the option",
    onDone: reload,
  };
}

function unsetting(option, kind, name, reload) {
  return {
    title: `Unset ${option.name}`,
    intro: "The next place in the list gives the value then.",
    request: (_, isDryRun) => ({ method: "PATCH", path: path("options", kind, name), body: { unset: [option.name], dry_run: isDryRun } }),
    verb: "Unset the option",
    onDone: reload,
  };
}
