// Ctrl-K: go to a page, a topic, a group or a broker by a part of its name.
import { get } from "./api.js";
import { html, signal, useEffect, useId, useRef, useState } from "./html.js";
import { go, to } from "./router.js";
import { Dialog } from "./ui.js";

const WORDS = { topic: "Topic", group: "Group", broker: "Broker" };

// The name of a broker is its id and its address.
function addressOf(kind, name) {
  return kind === "broker" ? to(["brokers", name.split(" ")[0]]) : to([`${kind}s`, name]);
}

export const isJumpOpen = signal(false);

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    isJumpOpen.value = true;
  }
});

export function Jump({ pages }) {
  return isJumpOpen.value ? html`<${OpenJump} pages=${pages} />` : null;
}

function OpenJump({ pages }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState([]);
  const [chosen, setChosen] = useState(0);
  const id = useId();
  const input = useRef(null);
  useEffect(() => input.current?.focus(), []);
  useEffect(() => {
    const wanted = text.trim().toLowerCase();
    const own = pages.filter(([, label]) => label.toLowerCase().includes(wanted)).map(([path, label]) => ["Page", label, path]);
    setFound(own);
    setChosen(0);
    if (!wanted) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const hits = await get("search", { q: text.trim() }, abort.signal).catch(() => ({ items: [] }));
      if (!abort.signal.aborted) setFound([...own, ...hits.items.map(({ kind, name }) => [WORDS[kind], name, addressOf(kind, name)])]);
    }, 150);
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [text]);
  const close = () => {
    isJumpOpen.value = false;
  };
  const open = (href) => {
    close();
    go(href);
  };
  const key = (event) => {
    // A search field takes Escape for itself, to clear what is typed.
    if (event.key === "Escape") close();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      setChosen((chosen + step + found.length) % found.length);
    } else if (event.key === "Enter" && found[chosen]) {
      event.preventDefault();
      open(found[chosen][2]);
    }
  };
  return html`<${Dialog} title="Go to" onClose=${close}>
    <div class="jump">
      <input ref=${input} type="search" role="combobox" aria-label="A part of a name" aria-expanded="true" aria-controls=${id}
        aria-activedescendant=${found[chosen] ? `${id}-${chosen}` : undefined} placeholder="Page, topic, group or broker" autocomplete="off"
        value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${key} />
      <ul id=${id} role="listbox" aria-label="Found">
        ${found.slice(0, 30).map(
          ([kind, label, href], index) => html`<li key=${kind + href} id=${`${id}-${index}`} role="option" aria-selected=${index === chosen}
            onClick=${() => open(href)}><span class="dim">${kind}</span> ${label}</li>`,
        )}
      </ul>
      ${found.length === 0 && html`<p class="dim" role="status">Nothing has this in its name.</p>`}
    </div>
  <//>`;
}
