// The frame of the console: menu, state of the cluster, and the page that the URL names.
import { change, get, session } from "./lib/api.js";
import { ChangeDialog } from "./lib/change.js";
import { count, duration } from "./lib/format.js";
import { html, render, useEffect, useState } from "./lib/html.js";
import { isJumpOpen, Jump } from "./lib/jump.js";
import { problems, streamState, told, toldAt } from "./lib/live.js";
import { route } from "./lib/router.js";
import { announcement, now, theme, THEMES, zone } from "./lib/settings.js";
import { Badge, Button, classNames, Empty, Loading, Page, ProblemBox } from "./lib/ui.js";

// Path, label, icon, and the module of a page.
const MENU = [
  ["Cluster", [
    ["overview", "Overview", "M3 3h7v7H3zM14 3h7v4h-7zM14 11h7v10h-7zM3 14h7v7H3z"],
    ["brokers", "Brokers and disks", "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01"],
    ["timeline", "Timeline", "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M12 7v5l3 2"],
    ["doctor", "Doctor", "M3 12h4l2-6 4 12 2-6h6"],
  ]],
  ["Data", [
    ["topics", "Topics", "M4 6h16M4 12h16M4 18h10"],
    ["records", "Records", "M5 3h10l4 4v14H5zM8 11h8M8 15h8"],
    ["groups", "Groups", "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6M3 20a6 6 0 0 1 12 0M16 5a3 3 0 0 1 0 6M18 14a6 6 0 0 1 3 6"],
    ["transactions", "Transactions", "M4 8h13l-3-4M20 16H7l3 4"],
    ["segments", "Segments", "M4 5h16v4H4zM4 11h11v4H4zM4 17h7v4H4z"],
  ]],
  ["Operation", [
    ["clients", "Clients", "M4 5h16v11H4zM9 20h6M12 16v4"],
    ["requests", "Requests", "M4 20V10M10 20V4M16 20v-7M22 20H2"],
    ["options", "Options", "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4"],
    ["security", "Security", "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6z"],
  ]],
];
const PAGES = MENU.flatMap(([, items]) => items);

const MODULES = {
  overview: () => import("./pages/overview.js"),
  brokers: () => import("./pages/brokers.js"),
  timeline: () => import("./pages/timeline.js"),
  doctor: () => import("./pages/doctor.js"),
  topics: () => import("./pages/topics.js"),
  topic: () => import("./pages/topic.js"),
  records: () => import("./pages/records.js"),
  groups: () => import("./pages/groups.js"),
  group: () => import("./pages/group.js"),
  transactions: () => import("./pages/transactions.js"),
  segments: () => import("./pages/segments.js"),
  clients: () => import("./pages/clients.js"),
  requests: () => import("./pages/requests.js"),
  options: () => import("./pages/options.js"),
  security: () => import("./pages/security.js"),
  login: () => import("./pages/login.js"),
};

/** Return the name of a page's module, and what it gets from the URL. */
function found({ parts, query }) {
  const [first = "overview", second, third, fourth] = parts;
  if (first === "topics" && second !== undefined) {
    if (third === "records") return ["records", { topic: second, query }];
    if (third === "options") return ["options", { kind: "topic", name: second, query }];
    if (third === "segments") return ["segments", { topic: second, partition: fourth ?? "0", query }];
    return third === undefined ? ["topic", { topic: second, query }] : [null, {}];
  }
  if (first === "groups" && second !== undefined) return ["group", { group: second, query }];
  if (first === "brokers" && third === "options") return ["options", { kind: "broker", name: second, query }];
  if (first === "options") return ["options", { kind: "broker", name: second ?? "all", query }];
  const isKnown = Object.hasOwn(MODULES, first) && first !== "topic" && first !== "group";
  return isKnown ? [first, { part: second, query }] : [null, {}];
}

function CurrentPage() {
  const [name, props] = found(route.value);
  const [modules, setModules] = useState(firstModules);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    if (name === null || modules[name]) return;
    MODULES[name]().then(
      (module) => setModules((before) => ({ ...before, [name]: module.default })),
      () => setProblem({ title: "This page cannot be loaded", detail: "The console has been updated, or does not answer.", advice: "Load the page again." }),
    );
  }, [name]);
  if (name === null) {
    return html`<${Page} title="There is no such page"><${Empty} title="Nothing is here"><a href="overview">Go to the overview</a><//><//>`;
  }
  const Content = modules[name];
  if (!Content) return problem ? html`<${ProblemBox} problem=${problem} />` : html`<${Loading} />`;
  // The key: another topic is another page, a new sort order is not.
  return html`<${Content} key=${`${name} ${route.value.parts.join("/")}`} ...${props} />`;
}

function Icon({ path }) {
  return html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${path} /></svg>`;
}

function Menu({ isOpen, onChoose }) {
  const current = route.value.parts[0] ?? "overview";
  const isRecords = current === "topics" && route.value.parts[2] === "records";
  const shown = isRecords ? "records" : current;
  return html`<nav id="menu" class=${classNames("side", isOpen && "open")} aria-label="Pages">
    ${MENU.map(
      ([title, items]) => html`<div key=${title} class="menu-part">
        <p class="menu-title">${title}</p>
        <ul>
          ${items.map(
            ([path, label, icon]) => html`<li key=${path}>
              <a href=${path} aria-current=${shown === path ? "page" : undefined} onClick=${onChoose}><${Icon} path=${icon} />${label}</a>
            </li>`,
          )}
        </ul>
      </div>`,
    )}
  </nav>`;
}

/** The state of the cluster in a word, on every page. */
function Health() {
  const overview = told.value.overview;
  const problem = problems.value.overview;
  if (streamState.value === "lost") {
    const age = toldAt.value ? `, shown state is ${duration(Math.max(0, now.value - toldAt.value))} old` : "";
    return html`<a href="doctor" class="health"><${Badge} kind="broken">No connection${age}<//></a>`;
  }
  if (problem && !overview) return html`<a href="doctor" class="health"><${Badge} kind="broken">${problem.title}<//></a>`;
  if (!overview) return html`<span class="health"><${Badge}>Connecting<//></span>`;
  const broken = overview.attention.filter((each) => each.severity === "broken").length;
  const all = overview.attention.length;
  const kind = broken ? "broken" : all ? "warning" : "ok";
  const text = all ? `${count(all)} need${all === 1 ? "s" : ""} attention` : "All well";
  return html`<a href="overview" class="health"><${Badge} kind=${kind}>${text}<//></a>`;
}

function nextOf(list, value) {
  return list[(list.indexOf(value) + 1) % list.length];
}

const THEME_WORDS = { system: "System theme", light: "Light theme", dark: "Dark theme" };
const THEME_MARKS = { system: "◐", light: "☀", dark: "☾" };

function Top({ isMenuOpen, onMenu }) {
  const { user, needs_login: needsLogin, bootstrap_servers: servers, is_read_only: isReadOnly } = session.value;
  const logOut = async () => {
    session.value = await change("DELETE", "session");
  };
  return html`<header class="top">
    <button type="button" class="button quiet menu-button" aria-expanded=${isMenuOpen} aria-controls="menu" onClick=${onMenu}>
      <span aria-hidden="true">☰</span> Menu
    </button>
    <a class="brand" href="overview" aria-label="Ottla">
      <svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" /><circle cx="16" cy="16" r="9" /><path d="M11.5 13h9M11.5 16h9M11.5 19h5" /></svg>
      <span>Ottla</span>
    </a>
    <span class="servers" title=${servers}>${servers}</span>
    ${isReadOnly && html`<${Badge} kind="info">Read-only<//>`}
    <${Health} />
    <div class="top-actions">
      <${Button} kind="quiet go-to" onClick=${() => (isJumpOpen.value = true)}>Go to <kbd>Ctrl K</kbd><//>
      <${Button} kind="quiet" title="Change the time zone" onClick=${() => (zone.value = zone.value === "UTC" ? "local" : "UTC")}>
        <span class="sr-only">Time zone: </span>${zone.value === "UTC" ? "UTC" : "Local"}<//>
      <${Button} kind="quiet" aria-label=${`${THEME_WORDS[theme.value]}; change`} title=${THEME_WORDS[theme.value]} onClick=${() => (theme.value = nextOf(THEMES, theme.value))}>
        <span aria-hidden="true">${THEME_MARKS[theme.value]}</span><//>
      ${needsLogin && html`<span class="user" title="You are logged in as this user">${user}</span><${Button} kind="small" onClick=${logOut}>Log out<//>`}
    </div>
  </header>`;
}

function App() {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const [module, setModule] = useState(null);
  const needsLogin = session.value.needs_login && !session.value.user;
  useEffect(() => {
    if (!needsLogin || module) return;
    const showLogin = () => MODULES.login().then((loaded) => setModule(() => loaded.default));
    // A link on another site brings browsers here without their cookie; the page itself may have it.
    get("session").then((found) => (found.user ? (session.value = found) : showLogin()), showLogin);
  }, [needsLogin]);

  if (needsLogin) {
    const Login = module;
    return html`<main class="alone">${Login ? html`<${Login} />` : html`<${Loading} />`}</main>`;
  }
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <${Top} isMenuOpen=${isMenuOpen} onMenu=${() => setMenuOpen(!isMenuOpen)} />
    <div class="frame">
      <${Menu} isOpen=${isMenuOpen} onChoose=${() => setMenuOpen(false)} />
      <main id="main" tabindex="-1"><${CurrentPage} /></main>
    </div>
    <${ChangeDialog} />
    <${Jump} pages=${PAGES} />
    <div class="sr-only" role="status" aria-live="polite">${announcement.value}</div>
  `;
}

// The page is shown at once with its content, if its module is here: the browser has loaded it with this one.
const [firstName] = found(route.value);
const firstModules = {};
try {
  if (firstName) firstModules[firstName] = (await MODULES[firstName]()).default;
} catch {
  // The page says so when it is shown.
}
render(html`<${App} />`, document.getElementById("app"));
