// Building blocks of the page. Every text goes into the page as text, never as HTML: names and bodies come from the
// network, and are hostile.

export const $ = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export const svg = (name, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
};

export const number = (value) => Math.round(value || 0).toLocaleString("en");

// A rate: small ones have a decimal, so that they are not 0.
export const rate = (value) => (value > 0 && value < 10 ? value.toFixed(1) : number(value));

export function size(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

export function lasted(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

export const ago = (seconds) => `${lasted(seconds)} ago`;
export const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
export const day = (milliseconds) => new Date(milliseconds).toISOString().replace("T", " ").slice(0, 23);

// The colours of the theme. Asking the browser for one makes it compute all styles again, so each is asked for once.
const colours = new Map();

export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}

export const spoken = (name) => name.replaceAll("_", " ");
export const pill = (text, kind = text) => element("span", { class: `pill ${kind}`, title: text }, text);
export const faint = (text) => element("span", { class: "faint" }, text);

// Show control characters and changes of direction, which a page would hide, as escapes.
export function escaped(text) {
  const parts = String(text).split(/([\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+)/);
  return parts.map((part, index) => index % 2 === 0 ? part : element("span", { class: "bytes" },
    [...part].map((one) => `\\${one.charCodeAt(0) > 255 ? "u" : "x"}${one.charCodeAt(0).toString(16).padStart(one.charCodeAt(0) > 255 ? 4 : 2, "0")}`).join("")));
}

// Replace the content of a place; the element that has the focus keeps it.
export function replace(place, ...children) {
  const held = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children);
  if (held !== undefined) place.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
}

// A table is a list of columns and a list of rows; cells are texts, elements or lists of these. A column is its name, or
// { name, sort, right }: `sort` is the server's name of it.
export function draw(table, columns, rows, empty, sorting = null) {
  const all = columns.map((one) => (typeof one === "string" ? { name: one.replace("#", ""), right: one.endsWith("#") } : one));
  const head = element("tr", {}, all.map((one) => {
    const sorted = sorting && one.sort && sorting.sort.replace("-", "") === one.sort ? (sorting.sort.startsWith("-") ? "descending" : "ascending") : null;
    const name = sorting && one.sort
      ? element("button", { class: "plain sort", type: "button", "data-key": `sort ${one.sort}`, onclick: () => sorting.choose(one.sort, one.right) }, spoken(one.name), sorted ? (sorted === "ascending" ? " ↑" : " ↓") : "")
      : spoken(one.name);
    return element("th", { scope: "col", class: one.right ? "n" : null, "aria-sort": sorted }, name);
  }));
  const body = rows.map((row) => element("tr", row.attributes || {}, row.cells.map((cell, index) =>
    element("td", { class: all[index].right ? "n" : row.classes?.[index] }, cell === null || cell === undefined ? [] : cell))));
  if (!rows.length) body.push(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, empty)));
  replace(table, element("thead", {}, head), element("tbody", {}, body));
}

const sparks = new Map(); // by name: the values, and the canvas that shows them

// A small chart. While its values are the same, so is the canvas.
export function spark(values, name, most = values.length) {
  const text = values.join();
  const known = sparks.get(name);
  if (known?.text === text) return known.canvas;
  if (sparks.size > 500) sparks.clear();
  const canvas = drawSpark(values, name, most);
  sparks.set(name, { text, canvas });
  return canvas;
}

function drawSpark(values, name, most) {
  const canvas = element("canvas", { class: "spark", width: 240, height: 52, role: "img", "aria-label": `${name}: now ${number(values.at(-1))}` });
  const pen = canvas.getContext("2d");
  const high = Math.max(...values, 1);
  const x = (index) => 238 - (236 * (values.length - 1 - index)) / Math.max(1, most - 1);
  const y = (value) => 48 - (44 * value) / high;
  pen.beginPath();
  values.forEach((value, index) => (index ? pen.lineTo(x(index), y(value)) : pen.moveTo(x(index), y(value))));
  pen.strokeStyle = colour("accent");
  pen.lineWidth = 2;
  pen.stroke();
  pen.lineTo(238, 50);
  pen.lineTo(x(0), 50);
  pen.fillStyle = colour("accent") + "22";
  pen.fill();
  return canvas;
}

const WHOLE = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat(); // steps of an axis of counts
const LINES = ["accent", "slow", "good", "bad", "ink", "faint"];
const charts = new Set();

// A chart over time with a line for each name.
export function chart(place, names, format = number) {
  const axis = { stroke: () => colour("faint"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false } };
  const made = new uPlot({
    width: place.clientWidth || 400, height: 200, cursor: { y: false }, legend: { show: names.length > 1, live: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [{ ...axis, space: 70, size: 30, values: (_, ticks) => ticks.map((one) => clock(one).slice(0, ticks.at(-1) - ticks[0] < 300 ? 8 : 5)) }, { ...axis, size: 64, incrs: format === number ? WHOLE : undefined, values: (_, ticks) => ticks.map(format) }],
    series: [{}, ...names.map((label, index) => ({ label, stroke: () => colour(LINES[index % LINES.length]), width: 2, points: { show: false },
      fill: index || names.length > 2 ? undefined : () => colour("accent") + "22" }))],
  }, [[], ...names.map(() => [])], place);
  charts.add(made);
  return { set: (data) => made.setData(data), remove: () => { charts.delete(made); made.destroy(); } };
}

export function resizeCharts() {
  for (const one of charts) one.setSize({ width: one.root.parentElement.clientWidth || 400, height: 200 });
}

// Use the colours of another theme.
export function changeColours() {
  colours.clear();
  sparks.clear();
  for (const one of charts) one.redraw();
}
