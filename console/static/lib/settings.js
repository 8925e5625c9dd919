// What a user has chosen in this browser: the theme and the time zone.
import { effect, signal } from "./html.js";

function stored(name, allowed) {
  try {
    const value = localStorage.getItem(`ottla.${name}`);
    return allowed.includes(value) ? value : allowed[0];
  } catch {
    return allowed[0];
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`ottla.${name}`, value);
  } catch {
    // The choice then holds until the page is closed.
  }
}

export const THEMES = ["system", "light", "dark"];
export const ZONES = ["local", "UTC"];
export const theme = signal(stored("theme", THEMES));
export const zone = signal(stored("zone", ZONES));

effect(() => {
  keep("theme", theme.value);
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});
effect(() => keep("zone", zone.value));

/** Ticks while the page is visible; relative times and ages depend on it. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

/** What screen readers announce next. */
export const announcement = signal("");
export function announce(text) {
  announcement.value = text;
}
