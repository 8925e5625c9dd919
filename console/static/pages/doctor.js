// The checks of `ottla doctor`.
import { useData } from "../lib/api.js";
import { plural } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Badge, Button, Command, CopyButton, Loading, Page, ProblemBox, Time } from "../lib/ui.js";

const WORDS = { broken: "Broken", warning: "Warning", ok: "Fine" };

export default function DoctorPage() {
  const { data, problem, isLoading, reload } = useData("doctor");
  const bad = data?.items.filter((each) => each.status !== "ok").length ?? 0;
  return html`<${Page}
    title="Doctor"
    lead="Checks connections, brokers, partitions, disks and options, and says what to change."
    actions=${html`<${Button} kind="primary" disabled=${isLoading} onClick=${reload}>Check again<//>`}
  >
    <${ProblemBox} problem=${problem} onRetry=${reload} />
    ${!data && !problem && html`<${Loading} label="Checking; this takes some seconds if something is broken" />`}
    ${data &&
    html`
      <p role="status">${bad ? `${plural(bad, "check has", "checks have")} something to say` : "All checks are fine"}, as of <${Time} ms=${data.as_of_ms} />.</p>
      <ul class="findings">
        ${data.items.map(
          (each) => html`<li key=${each.check + each.found} class=${each.status}>
            <${Badge} kind=${each.status}>${WORDS[each.status]}<//>
            <div>
              <p><strong>${each.check}</strong> ${each.found}</p>
              ${each.advice && html`<p>${each.advice}</p>`}
              ${each.change && html`<div class="command-line"><code>${each.change}</code><${CopyButton} text=${each.change} /></div>`}
            </div>
          </li>`,
        )}
      </ul>
      <${Command} text=${data.command} />
    `}
  <//>`;
}
