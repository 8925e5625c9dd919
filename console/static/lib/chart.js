// Time series. A chart has a sentence as its name, and a table behind a button.
import { absolute } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { theme, zone } from "./settings.js";
import { Button, Table } from "./ui.js";

// Only pages with charts load it, and only when they show one.
let library = null;
function useLibrary() {
  const [uPlot, setLibrary] = useState(() => library);
  useEffect(() => {
    if (library) return;
    import("../vendor/uplot.js").then(
      (loaded) => {
        library = loaded.default;
        setLibrary(() => library);
      },
      // The numbers stand beside the chart, and in its table.
      () => {},
    );
  }, []);
  return uPlot;
}

// A chart that has just begun does not stretch its few points over the whole width.
const SPAN_S = 60;

/** Resolve a custom property to a colour that a canvas knows. */
function colour(element, name, opacity = 1) {
  element.style.color = `var(${name})`;
  const found = getComputedStyle(element).color;
  element.style.color = "";
  return opacity === 1 ? found : found.replace("rgb(", "rgba(").replace(")", `, ${opacity})`);
}

/**
 * `data` is [times in seconds, values, values, ...]; `series` has { label, colour: a custom property, format }.
 */
export function Chart({ label, data, series, height = 150 }) {
  const box = useRef(null);
  const plot = useRef(null);
  const uPlot = useLibrary();
  const [isTable, setTable] = useState(false);
  const [scheme, setScheme] = useState(0);
  const format = series[0].format;
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setScheme((before) => before + 1);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    if (isTable || !uPlot) return undefined;
    const grid = { stroke: colour(box.current, "--line"), width: 1 };
    const axis = { stroke: colour(box.current, "--text-dim"), grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const made = new uPlot(
      {
        width: box.current.clientWidth || 300,
        height,
        legend: { show: false },
        cursor: { y: false, points: { size: 6 } },
        tzDate: (seconds) => (zone.value === "UTC" ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000)),
        scales: { x: { range: (_, low, high) => [Math.min(low, high - SPAN_S), high] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { ...axis, space: 80, values: "{HH}:{mm}:{ss}" },
          { ...axis, size: 76, space: 36, values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [
          {},
          ...series.map((each) => ({
            label: each.label,
            stroke: colour(box.current, each.colour),
            fill: series.length === 1 ? colour(box.current, each.colour, 0.12) : undefined,
            width: 2,
            dash: each.isDashed ? [6, 4] : undefined,
            points: { show: false },
          })),
        ],
      },
      data,
      box.current,
    );
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: box.current?.clientWidth || 300, height }));
    resized.observe(box.current);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [uPlot, isTable, theme.value, zone.value, scheme, height]);
  useEffect(() => plot.current?.setData(data), [data]);

  const last = (index) => format(data[index + 1].at(-1) ?? null);
  const summary = `${label}: ${series.map((each, index) => `${each.label} ${last(index)}`).join(", ")} now.`;
  return html`<figure class="chart">
    <figcaption>
      <span class="chart-title">${label}</span>
      <span class="legend">
        ${series.map(
          (each, index) => html`<span key=${each.label}><span class=${`swatch ${each.isDashed ? "dashed" : ""}`} style=${{ borderColor: `var(${each.colour})` }} aria-hidden="true"></span>${each.label} <strong>${last(index)}</strong></span>`,
        )}
      </span>
      <${Button} kind="small quiet" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>${isTable ? "Chart" : "Table"}<//>
    </figcaption>
    ${isTable
      ? html`<${Table}
          caption=${label}
          rows=${data[0].map((_, index) => index).reverse().slice(0, 60)}
          columns=${[
            { id: "time", label: "Time", isHeader: true, render: (index) => absolute(data[0][index] * 1000, zone.value) },
            ...series.map((each, number) => ({
              id: each.label,
              label: each.label,
              align: "right",
              render: (index) => each.format(data[number + 1][index]),
            })),
          ]}
        />`
      : html`<div ref=${box} class="plot" style=${{ height: `${height}px` }} role="img" aria-label=${summary}></div>`}
  </figure>`;
}
