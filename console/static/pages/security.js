// Users, ACLs, who may do what and why, and quotas.
import { path, useData } from "../lib/api.js";
import { ChangeButton } from "../lib/change.js";
import { count } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { setQuery, to } from "../lib/router.js";
import { Badge, BrokerLink, Command, Empty, Field, Loaded, Page, SearchField, Section, Table, Tabs, Unknown } from "../lib/ui.js";

const OPERATIONS = ["read", "write", "create", "delete", "alter", "describe", "alter-configs", "describe-configs", "cluster-action", "idempotent-write", "create-tokens", "describe-tokens", "all"];
const RESOURCES = ["topic", "group", "transactional-id", "cluster", "delegation-token", "user"];

export default function SecurityPage({ part = "acls", query }) {
  const Content = { users: Users, acls: Acls, may: May, quotas: Quotas }[part] ?? Acls;
  return html`<${Page} title="Security">
    <${Tabs} label="Parts of security" current=${part} items=${[["acls", "ACLs", "security"], ["may", "Who may do what?", "security/may"], ["users", "Users", "security/users"], ["quotas", "Quotas", "security/quotas"]]} />
    <${Content} query=${query} />
  <//>`;
}

function Users() {
  const source = useData("users");
  const add = html`<${ChangeButton} kind="primary" spec=${() => userChange(source.reload)}>Add a user<//>`;
  return html`<${Section} title="Users with passwords" actions=${add}>
    <${Loaded} source=${source}>
      ${(data) => data.items.length
        ? html`<${Table} caption="Users" rows=${data.items} rowKey=${(each) => each.user} columns=${[
            { id: "user", label: "User", isHeader: true, className: "name", render: (each) => each.user },
            { id: "credentials", label: "Passwords", render: (each) => each.credentials.map((one) => `${one.mechanism} (${count(one.iterations)} rounds)`).join(", ") },
            { id: "do", label: "Actions", className: "row-actions", render: (each) => html`<a class="button small" href=${to(["security"], { principal: `User:${each.user}` })}>ACLs<span class="sr-only"> of ${each.user}</span></a>
              <${ChangeButton} kind="small" spec=${() => userChange(source.reload, each.user)}>Password<span class="sr-only"> of ${each.user}</span><//>
              <${ChangeButton} kind="small danger-quiet" spec=${() => userDeletion(each.user, source.reload)}>Delete<span class="sr-only"> ${each.user}</span><//>` },
          ]} />`
        : html`<${Empty} title="No user has a password" command="ottla user create alice">Users of the cluster log in with SCRAM; the brokers keep only a hash.<//>`}
    <//>
    <${Command} text="ottla user list" />
  <//>`;
}

function userChange(reload, user = "") {
  return {
    title: user ? `Change the password of ${user}` : "Add a user",
    intro: "The password is hashed here and never sent to the brokers.",
    fields: [
      ...(user ? [] : [{ name: "user", label: "User", required: true }]),
      { name: "password", label: "Password", type: "password", required: true, autocomplete: "new-password" },
      { name: "mechanism", label: "Mechanism", type: "select", value: "SCRAM-SHA-512", options: ["SCRAM-SHA-512", "SCRAM-SHA-256"] },
    ],
    request: (values, isDryRun) => ({ method: "POST", path: "users", body: { user: user || values.user, password: values.password, mechanism: values.mechanism, dry_run: isDryRun } }),
    verb: user ? "Change the password" : "Add the user",
    onDone: reload,
  };
}

function userDeletion(user, reload) {
  return {
    title: `Delete ${user}`,
    intro: "Deletes all passwords of the user, who cannot log in any more. ACLs stay.",
    confirm: user,
    isDangerous: true,
    request: (_, isDryRun, typed) => ({ method: "DELETE", path: path("users", user), body: { confirm: isDryRun ? "" : typed, dry_run: isDryRun } }),
    verb: "Delete the user",
    onDone: reload,
  };
}

function resourceText(acl) {
  return acl.resource_type === "cluster" ? "the cluster" : `${acl.resource_type} ${acl.resource_name}${acl.pattern_type === "prefixed" ? "*" : ""}`;
}

const ACL_COLUMNS = [
  { id: "principal", label: "Who", isHeader: true, className: "name", render: (acl) => acl.principal },
  { id: "permission", label: "May", render: (acl) => html`<${Badge} kind=${acl.permission_type === "deny" ? "broken" : "ok"}>${acl.permission_type}<//>` },
  { id: "operation", label: "Do", render: (acl) => acl.operation },
  { id: "resource", label: "What", className: "name", render: resourceText },
  { id: "host", label: "From", isWide: true, render: (acl) => (acl.host === "*" ? "anywhere" : acl.host) },
];

const keyOf = (acl) => JSON.stringify(acl);

function Acls({ query }) {
  const principal = query.get("principal") ?? "";
  const resource = query.get("resource") ?? "";
  const source = useData("acls", useMemo(() => ({ principal, resource_name: resource }), [principal, resource]));
  const add = html`<${ChangeButton} kind="primary" spec=${() => aclCreation(source.reload)}>Add an ACL<//>`;
  return html`<${Section} title="ACLs" actions=${add}>
    <div class="toolbar">
      <${SearchField} hasLabel label="Of user" placeholder="User:alice" value=${principal} onSearch=${(text) => setQuery({ principal: text })} />
      <${SearchField} hasLabel label="On resource" placeholder="orders" value=${resource} onSearch=${(text) => setQuery({ resource: text })} />
    </div>
    <${Loaded} source=${source}>
      ${(data) => !data.is_enabled
        ? html`<${Unknown} text="The brokers check no rights: everybody may do everything. ACLs need the option authorizer.class.name." />`
        : data.items.length
          ? html`<${Table} caption="ACLs" rows=${data.items} rowKey=${keyOf} columns=${[...ACL_COLUMNS, { id: "do", label: "Actions", className: "row-actions", render: (acl) => html`<${ChangeButton} kind="small danger-quiet" spec=${() => aclDeletion(acl, source.reload)}>Delete<span class="sr-only"> this ACL of ${acl.principal}</span><//>` }]} />`
          : html`<${Empty} title="No ACL matches" command="ottla acl create --principal User:alice --topic orders --operation read --allow">Without an ACL, only super users may do something.<//>`}
    <//>
    <${Command} text="ottla acl list" />
  <//>`;
}

function aclCreation(reload) {
  return {
    title: "Add an ACL",
    fields: [
      { name: "principal", label: "Who", required: true, value: "User:" },
      { name: "permission", label: "May or may not", type: "select", value: "allow", options: [["allow", "may"], ["deny", "may not"]] },
      { name: "operation", label: "Do", type: "select", value: "read", options: OPERATIONS },
      { name: "resource", label: "On", type: "select", value: "topic", options: RESOURCES },
      { name: "name", label: "Named", required: true, placeholder: "orders, or * for all" },
      { name: "isPrefix", label: "All names that begin so", type: "check", value: false },
      { name: "host", label: "From address", value: "*", required: true },
    ],
    request: (values, isDryRun) => ({
      method: "POST",
      path: "acls",
      body: {
        acls: [{ principal: values.principal, operation: values.operation, resource_type: values.resource, resource_name: values.resource === "cluster" ? "kafka-cluster" : values.name, pattern_type: values.isPrefix ? "prefixed" : "literal", permission_type: values.permission, host: values.host }],
        dry_run: isDryRun,
      },
    }),
    verb: "Add the ACL",
    onDone: reload,
  };
}

function aclDeletion(acl, reload) {
  return {
    title: "Delete an ACL",
    isDangerous: true,
    request: (_, isDryRun) => ({ method: "DELETE", path: "acls", body: { acls: [acl], dry_run: isDryRun } }),
    verb: "Delete the ACL",
    onDone: reload,
  };
}

function May({ query }) {
  const [draft, setDraft] = useState({
    principal: query.get("principal") ?? "",
    operation: query.get("operation") ?? "read",
    type: query.get("type") ?? "topic",
    name: query.get("name") ?? "",
    host: query.get("host") ?? "*",
  });
  const isAsked = query.has("principal");
  const asked = useMemo(() => ({ principal: query.get("principal"), operation: query.get("operation") ?? "read", resource_type: query.get("type") ?? "topic", resource_name: query.get("name") ?? "", host: query.get("host") ?? "*" }), [query.toString()]);
  const source = useData(isAsked ? "acls/explain" : null, asked);
  const set = (name) => (value) => setDraft({ ...draft, [name]: value });
  const submit = (event) => {
    event.preventDefault();
    setQuery(draft);
  };
  return html`<${Section} title="May somebody do something, and why?">
    <form class="controls" onSubmit=${submit}>
      <${Field} label="User" value=${draft.principal} onInput=${set("principal")} required placeholder="alice" />
      <${Field} type="select" label="Wants to" value=${draft.operation} onInput=${set("operation")} options=${OPERATIONS} />
      <${Field} type="select" label="The" value=${draft.type} onInput=${set("type")} options=${RESOURCES} />
      ${draft.type !== "cluster" && html`<${Field} label="Named" value=${draft.name} onInput=${set("name")} required placeholder="orders" />`}
      <${Field} label="From address" value=${draft.host} onInput=${set("host")} />
      <div class="control-buttons"><button type="submit" class="button primary">Ask</button></div>
    </form>
    ${isAsked &&
    html`<${Loaded} source=${source}>
      ${(data) => html`
        <div class=${`notice ${data.is_allowed ? "ok" : "broken"}`} role="status"><span class="mark" aria-hidden="true">${data.is_allowed ? "●" : "✕"}</span><div><strong>${data.sentence}</strong></div></div>
        ${data.decided_by.length > 0 && html`<h3>Decided by</h3><${Table} caption="ACLs that decide" rows=${data.decided_by} rowKey=${keyOf} columns=${ACL_COLUMNS} />`}
        ${data.related.length > 0 && html`<h3>Other ACLs of it</h3><${Table} caption="Related ACLs" rows=${data.related} rowKey=${keyOf} columns=${ACL_COLUMNS} />`}
        <${Command} text=${data.command} />
      `}
    <//>`}
  <//>`;
}

function entityText(entity) {
  return Object.entries(entity).map(([type, name]) => `${type} ${name === null ? "(default)" : name}`).join(", ");
}

const QUOTAS = [
  ["producer_byte_rate", "bytes to send a second"],
  ["consumer_byte_rate", "bytes to get a second"],
  ["request_percentage", "percent of a thread for requests"],
  ["controller_mutation_rate", "partitions to create or delete a second"],
  ["connection_creation_rate", "connections a second"],
];

function quotaChange(reload) {
  return {
    title: "Set a quota",
    intro: "A quota holds on each broker on its own. Leave a name empty for the default of its kind.",
    fields: [
      { name: "kind", label: "Of a", type: "select", value: "user", options: ["user", "client-id", "ip"] },
      { name: "name", label: "Named", placeholder: "the default" },
      { name: "quota", label: "Limit", type: "select", value: QUOTAS[0][0], options: QUOTAS },
      { name: "value", label: "To", type: "number", min: 0, step: "any", placeholder: "no limit" },
    ],
    request: (values, isDryRun) => ({
      method: "PATCH",
      path: "quotas",
      body: { entity: { [values.kind]: values.name || null }, quotas: { [values.quota]: values.value === "" ? null : Number(values.value) }, dry_run: isDryRun },
    }),
    verb: "Set the quota",
    onDone: reload,
  };
}

function Quotas() {
  const source = useData("quotas", {}, { every: 5000 });
  return html`<${Loaded} source=${source}>
    ${(data) => html`
      <${Section} title="Quotas" actions=${html`<${ChangeButton} kind="primary" spec=${() => quotaChange(source.reload)}>Set a quota<//>`}>
        ${data.items.length
          ? html`<${Table} caption="Quotas" rows=${data.items} rowKey=${(each) => entityText(each.entity)} columns=${[
              { id: "entity", label: "Of", isHeader: true, className: "name", render: (each) => entityText(each.entity) },
              { id: "quotas", label: "Limits", render: (each) => Object.entries(each.quotas).map(([name, value]) => `${name} ${count(value)}`).join(", ") },
            ]} />`
          : html`<${Empty} title="Nobody is limited" command="ottla quota alter --user alice --produce 1048576">A quota limits what a user or a client may send and get from each broker.<//>`}
        <${Command} text="ottla quota list" />
      <//>
      <${Section} title="What clients use now">
        <${Unknown} text=${data.use_unknown} />
        ${data.use.length
          ? html`<${Table} caption="Use by client" rows=${data.use} rowKey=${(each) => `${each.broker_id} ${each.kind} ${each.user} ${each.client_id}`} columns=${[
              { id: "client", label: "Client id", isHeader: true, className: "name", render: (each) => each.client_id || html`<span class="dim">(any)</span>` },
              { id: "user", label: "User", className: "name", render: (each) => each.user || html`<span class="dim">(any)</span>` },
              { id: "kind", label: "Kind", render: (each) => each.kind },
              { id: "value", label: "Uses", align: "right", render: (each) => count(Math.round(each.value)) },
              { id: "throttle", label: "Waits", align: "right", render: (each) => (each.throttle_ms ? html`<${Badge} kind="warning">${count(Math.round(each.throttle_ms))} ms<//>` : "–") },
              { id: "broker", label: "Broker", align: "right", render: (each) => html`<${BrokerLink} id=${each.broker_id} />` },
            ]} />`
          : !data.use_unknown && html`<p class="dim">No client uses anything that is limited.</p>`}
      <//>
    `}
  <//>`;
}
