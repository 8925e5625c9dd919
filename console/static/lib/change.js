// Every change of the cluster: first what it would do, then the change, always with the command that does the same.
import { change, Problem, session } from "./api.js";
import { html, signal, useEffect, useState } from "./html.js";
import { announce } from "./settings.js";
import { Badge, Button, Command, Dialog, Field, ProblemBox, Table } from "./ui.js";

const opened = signal(null);

/**
 * Open the dialog of a change:
 *   title, intro     what it is
 *   fields           [{ name, label, value, type, help, options, required }]
 *   request          (values, isDryRun) => ({ method, path, body })
 *   confirm          the name that must be typed before something is destroyed
 *   verb             the text of the button
 *   onDone           called with the answer
 */
export function openChange(spec) {
  opened.value = { fields: [], verb: "Apply", ...spec };
}

/** A button that opens a change; it says why it is off on a read-only console. */
export function ChangeButton({ spec, kind = "", children, ...rest }) {
  const isOff = session.value?.is_read_only;
  return html`<${Button}
    kind=${kind}
    disabled=${isOff}
    title=${isOff ? "This console is read-only" : undefined}
    onClick=${() => openChange(typeof spec === "function" ? spec() : spec)}
    ...${rest}
    >${children}<//
  >`;
}

export function ChangeDialog() {
  const spec = opened.value;
  if (!spec) return null;
  return html`<${OpenChange} key=${spec.title} spec=${spec} onClose=${() => (opened.value = null)} />`;
}

function OpenChange({ spec, onClose }) {
  const [values, setValues] = useState(() => Object.fromEntries(spec.fields.map((field) => [field.name, field.value ?? ""])));
  const [preview, setPreview] = useState(null);
  const [answer, setAnswer] = useState(null);
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [typed, setTyped] = useState("");

  const run = async (isDryRun) => {
    setBusy(true);
    setProblem(null);
    try {
      const { method, path, body } = spec.request(values, isDryRun, typed);
      const found = await change(method, path, body);
      if (isDryRun) {
        setPreview(found);
        announce("Checked. Nothing has changed yet.");
      } else {
        setAnswer(found);
        const failed = (found.changes ?? []).filter((row) => row.error).length;
        announce(failed ? `${failed} changes failed` : "Done");
        spec.onDone?.(found);
      }
    } catch (error) {
      setProblem(error instanceof Problem ? error.details : { title: String(error.message ?? error), detail: "" });
      if (isDryRun) setPreview(null);
    }
    setBusy(false);
  };
  useEffect(() => {
    if (!spec.fields.length) run(true);
  }, []);

  const set = (name, value) => {
    setValues({ ...values, [name]: value });
    setPreview(null);
  };
  const isComplete = spec.fields.every((field) => !field.required || String(values[field.name]).length);
  const isConfirmed = !spec.confirm || typed === spec.confirm;
  const isReady = isComplete && isConfirmed && preview;
  const submit = (event) => {
    event.preventDefault();
    if (isBusy || answer || !isComplete) return;
    if (!preview) run(true);
    else if (isConfirmed) run(false);
  };

  return html`<${Dialog} title=${spec.title} onClose=${onClose} isWide=${spec.isWide}>
    <form onSubmit=${submit}>
      ${spec.intro && html`<p>${spec.intro}</p>`}
      ${!answer &&
      spec.fields.map(
        ({ name, value: _, ...field }) => html`<${Field} key=${name} ...${field} value=${values[name]} onInput=${(value) => set(name, value)} />`,
      )}
      <${ProblemBox} problem=${problem} />
      ${(answer ?? preview) && html`<${Outcome} change=${answer ?? preview} isDone=${Boolean(answer)} />`}
      ${!answer &&
      spec.confirm !== undefined &&
      html`<${Field} label=${`Type ${spec.confirm} to confirm`} value=${typed} onInput=${setTyped} />`}
      <div class="dialog-foot">
        ${answer
          ? html`<${Button} kind="primary" onClick=${onClose}>Close<//>`
          : html`<${Button} onClick=${onClose}>Cancel<//>
              ${!preview
                ? html`<button class="button primary" type="submit" disabled=${isBusy || !isComplete}>${isBusy ? "Checking …" : "Check"}</button>`
                : html`<button class=${`button ${spec.isDangerous ? "danger" : "primary"}`} type="submit" disabled=${isBusy || !isReady}>
                    ${isBusy ? "Working …" : spec.verb}
                  </button>`}`}
      </div>
    </form>
  <//>`;
}

/** What changes or has changed. */
export function Outcome({ change: found, isDone }) {
  const rows = found.changes ?? [];
  const failed = rows.filter((row) => row.error).length;
  const hasErrors = failed > 0;
  return html`<div class="outcome" role="status">
    <p>
      ${isDone
        ? html`<${Badge} kind=${failed ? "broken" : "ok"}>${failed ? `${failed} of ${rows.length} failed` : "Done"}<//>`
        : html`<${Badge} kind="info">Preview: nothing has changed yet<//>`}
    </p>
    ${isDone && found.offset !== undefined &&
    html`<p>Written to partition ${found.partition} at offset <strong>${found.offset}</strong>.</p>`}
    ${rows.length > 0 &&
    html`<${Table}
      caption="Changes"
      rows=${rows}
      columns=${[
        { id: "subject", label: "What", isHeader: true, className: "name", render: (row) => row.subject },
        rows.some((row) => row.before !== null) && { id: "before", label: "Before", className: "value-cell", render: (row) => html`<span class="before">${row.before ?? "–"}</span>` },
        rows.some((row) => row.after !== null) && { id: "after", label: "After", className: "value-cell", render: (row) => html`<span class="after">${row.after ?? "–"}</span>` },
        hasErrors && { id: "error", label: "Error", render: (row) => row.error ?? "" },
      ]}
    />`}
    ${found.changes && rows.length === 0 && html`<p>There is nothing to change.</p>`}
    ${(found.warnings ?? []).map(
      (text) => html`<div key=${text} class="notice warning"><span class="mark" aria-hidden="true">▲</span><div>${text}</div></div>`,
    )}
    <${Command} text=${found.command} />
  </div>`;
}
