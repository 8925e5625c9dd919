// Runs before the first paint, so that the page does not flash in the other theme.
(() => {
  try {
    const theme = localStorage.getItem("ottla.theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be forbidden; then the system's theme is used.
  }
})();
