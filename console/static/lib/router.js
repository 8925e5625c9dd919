// Every view has a URL below <base>: `topics/orders/records?from=-50`. Names are percent-encoded.
import { signal } from "./html.js";

const base = new URL(document.baseURI);

function current() {
  const path = location.pathname.startsWith(base.pathname) ? location.pathname.slice(base.pathname.length) : "";
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { parts, query: new URLSearchParams(location.search), key: path + location.search };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal(current());
addEventListener("popstate", () => {
  route.value = current();
});

/** Return the address of a view; parts are names, which may hold anything. */
export function to(parts, query = {}) {
  const path = (Array.isArray(parts) ? parts : [parts]).map((part) => encodeURIComponent(part)).join("/");
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null && each !== "" && each !== false) search.append(name, String(each));
    }
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

/** Go to a view. With `replace`, the back button skips the view that is left: for filters and sort orders. */
export function go(href, { replace = false } = {}) {
  const url = new URL(href, base);
  if (url.href !== location.href) history[replace ? "replaceState" : "pushState"](null, "", url);
  const before = route.value;
  route.value = { ...current(), isSamePage: replace };
  if (!replace && before.key !== route.value.key) scrollTo(0, 0);
}

/** Change parameters of the current view; null removes one. */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === false) query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  go(location.pathname + (text ? `?${text}` : ""), { replace: true });
}

// Links are ordinary links; those to views do not load the page again.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== base.origin) return;
  const path = link.pathname;
  if (!path.startsWith(base.pathname) || path.startsWith(`${base.pathname}api/`)) return;
  event.preventDefault();
  go(link.href);
});
