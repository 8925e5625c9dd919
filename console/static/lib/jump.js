// Ctrl-K: go to a page, a topic or a group by a part of its name.
import { get } from "./api.js";
import { html, signal, useEffect, useId, useRef, useState } from "./html.js";
import { go, to } from "./router.js";
import { Dialog } from "./ui.js";

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
      const part = (name) => get(name, { q: wanted, limit: 8 }, abort.signal).catch(() => ({ items: [] }));
      const [topics, groups] = await Promise.all([part("topics"), part("groups")]);
      if (abort.signal.aborted) return;
      setFound([
        ...own,
        ...topics.items.map((each) => ["Topic", each.name, to(["topics", each.name])]),
        ...groups.items.map((each) => ["Group", each.group_id, to(["groups", each.group_id])]),
      ]);
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
        aria-activedescendant=${found[chosen] ? `${id}-${chosen}` : undefined} placeholder="Page, topic or group" autocomplete="off"
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
