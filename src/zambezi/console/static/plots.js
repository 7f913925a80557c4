// Plots of the results of pipelines, from the data that a run has saved (`spark/report/charts`). They show what is known:
// a step without messages is zero, a time in which messages are missing is shaded, and silence has no bar.

import { svg } from "./parts.js";

const NARROW = 620; // pixels; below, a name has a line of its own, and numbers have less room
const CHARACTER = 7.2; // pixels
const NAMED = 16; // the height of a name above its line
const STRIP = 46; // the height of a series
const LINE = 20; // the height of a line of time
const LARGEST_CELL = 38;
const SMALLEST_CELL = 15;
const NUMBERED = 26; // pixels of a cell that has room for its number
const MINUTE = 60, HOUR = 3600, DAY = 86400;
const TIMES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30].map((one) => one * MINUTE),
  ...[1, 2, 3, 6, 12].map((one) => one * HOUR), ...[1, 2, 7, 14, 30, 91, 182, 365, 1826, 3652].map((one) => one * DAY)];

// A text with its beginning and its end, if it is too long: names of one stream often differ only at the end.
function cut(text, longest) {
  if (text.length <= longest) return text;
  const tail = Math.floor(Math.max(1, longest - 1) / 2);
  return `${text.slice(0, Math.max(1, longest - 1 - tail))}…${tail ? text.slice(-tail) : ""}`;
}
const moment = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");

function short(value) {
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"]]) if (value >= size) return `${(value / size).toFixed(1).replace(/\.0$/, "")}${unit}`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1).replace(/\.0$/, "")}k`;
  return value.toLocaleString("en", value < 100 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
}

function span(seconds) {
  for (const [unit, size, top] of [["µs", 1e-6, 1e-3], ["ms", 1e-3, 1], ["s", 1, 120], ["min", MINUTE, 120 * MINUTE], ["h", HOUR, 4 * DAY]]) {
    if (seconds < top) return `${Number((seconds / size).toPrecision(3))} ${unit}`;
  }
  return `${Number((seconds / DAY).toPrecision(3))} days`;
}

// The end of a scale from zero: the next round number.
function niceTop(most) {
  if (!(most > 0)) return 1;
  const unit = 10 ** Math.floor(Math.log10(most));
  return unit * ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => unit * step >= most * (1 - 1e-9)) || 10);
}

// Round times with their labels, in UTC.
function timeMarks(begin, end, most) {
  const length = Math.max(end - begin, 1e-3);
  const step = TIMES.find((one) => length / one < most) || length / most;
  const days = moment(begin).slice(0, 10) !== moment(end).slice(0, 10);
  const marks = [];
  for (let number = Math.ceil(begin / step - 1e-9); number * step <= end + 1e-9 && marks.length <= most; number += 1) {
    const text = moment(number * step);
    const time = step >= MINUTE ? text.slice(11, 16) : step >= 1 ? text.slice(11, 19) : text.slice(11).padEnd(12, ".000");
    marks.push([number * step, step >= DAY ? text.slice(0, 10) : days ? `${text.slice(5, 10)} ${time}` : time]);
  }
  return marks;
}

const text = (words, x, y, attributes = {}) => svg("text", { x, y, ...attributes }, words);
const told = (made, words) => { made.append(svg("title", {}, words)); return made; };
const box = (kind, x, y, width, height, words, more = {}) => {
  const made = svg("rect", { class: kind, x, y, width, height, ...more });
  return words ? told(made, words) : made;
};
const drawing = (width, height, parts) => { const made = svg("svg", { class: "drawing", width, height, viewBox: `0 0 ${width} ${height}` }); made.append(...parts); return made; };

// The width for names on the left of a plot: that of the longest one, within bounds.
const nameWidth = (names, width) => Math.min(Math.max(120, 12 + CHARACTER * Math.max(...names.map((name) => name.length))), 0.3 * width);

// The room of a plot over time: names on the left, or above their lines if the plot is narrow; numbers on the right.
function frame(width, begin, end, names) {
  const narrow = width < NARROW, left = narrow ? 2 : nameWidth(names, width), right = narrow ? 92 : 120;
  const room = Math.max(60, width - left - right);
  const longest = Math.floor((narrow ? width - 4 : left - 10) / CHARACTER);
  const name = (words, top, y) => told(narrow ? text(cut(words, longest), left, top + NAMED - 4) : text(cut(words, longest), left - 10, y, { "text-anchor": "end" }), words);
  return { narrow, left, room, above: narrow ? NAMED : 0, end: left + room, at: (time) => left + ((time - begin) / (end - begin)) * room, name };
}

function timeAxis(place, begin, end, bottom) {
  const marks = timeMarks(begin, end, Math.max(2, Math.floor(place.room / 90)));
  const date = `${moment(begin).slice(0, 10)} UTC`;
  return [...marks.flatMap(([time, label]) => [svg("line", { class: "mark", x1: place.at(time), x2: place.at(time), y1: 4, y2: bottom }),
    text(label, place.at(time), bottom + 15, { class: "faint", "text-anchor": place.at(time) - place.left < 20 ? "start" : "middle" })]), // the date is on the left
  place.narrow ? text(date, place.left, bottom + 31, { class: "faint" }) : text(date, place.left - 10, bottom + 15, { class: "faint", "text-anchor": "end" })];
}

function strips({ begin, length, count, unit, unknown, series }, width) {
  const place = frame(width, begin, begin + length * count, series.map(({ name }) => name));
  const each = STRIP + place.above, bottom = 8 + each * series.length;
  const step = place.room / count;
  const parts = timeAxis(place, begin, begin + length * count, bottom);
  parts.push(...unknown.map((number) => box("unknown", place.left + number * step, 4, Math.max(2, step), bottom - 4, "sequences are missing here")));
  series.forEach(({ name, values }, index) => {
    const base = each * (index + 1);
    const [busiest, peak] = values.reduce((most, one) => (one[1] > most[1] ? one : most), [0, 0]);
    const scale = (STRIP - 14) / niceTop(peak);
    const path = values.map(([number, value]) => `M${(place.left + number * step).toFixed(2)} ${base}v${(-value * scale).toFixed(2)}h${step.toFixed(2)}V${base}z`).join("");
    parts.push(place.name(name, each * index + 6, base - 8), svg("line", { class: "base", x1: place.left, x2: place.end, y1: base, y2: base }),
      told(svg("path", { class: "plot", d: path }), `${name}: at most ${short(peak)} ${unit}, at ${moment(begin + busiest * length)}`),
      text(`peak ${short(peak)}`, place.end + 8, base - 14), text(cut(unit, place.narrow ? 12 : 18), place.end + 8, base, { class: "faint" }));
  });
  return drawing(width, bottom + 24 + place.above, parts);
}

function timeline({ begin, end, legend, lines }, width) {
  const place = frame(width, begin, end, lines.map(({ name }) => name));
  const each = LINE + place.above, bottom = 8 + each * lines.length;
  const parts = timeAxis(place, begin, end, bottom);
  lines.forEach(({ name, text: words, bars }, index) => {
    const top = 8 + each * index + place.above;
    parts.push(place.name(name, top - place.above, top + 13), box("track", place.left, top + 4, place.room, LINE - 9));
    for (const [from, to, kind, remark] of bars) {
      const x = place.at(begin + Math.max(0, from));
      parts.push(box(kind, x, top + 4, Math.max(1.5, Math.min(place.at(begin + to), place.end) - x), LINE - 9,
        `${name}: ${moment(begin + from)} to ${moment(begin + to)}${remark ? `: ${remark}` : ""}`));
    }
    parts.push(text(words, place.end + 8, top + 13, { class: "faint" }));
  });
  let x = width < NARROW ? 10 : place.left, y = bottom + 38 + place.above;
  for (const [kind, meaning] of Object.entries(legend)) {
    if (x > 10 && x + 22 + 6.6 * meaning.length > width) [x, y] = [10, y + 18];
    parts.push(box(kind, x, y - 9, 10, 10), text(meaning, x + 15, y, { class: "faint" }));
    x += 40 + 6.6 * meaning.length;
  }
  return drawing(width, y + 8, parts);
}

function distribution({ per_decade: each, unit, marks, bins }, width) {
  const first = Math.floor(bins[0][0] / each) * each;
  const last = Math.ceil((bins.at(-1)[0] + 1) / each) * each;
  const left = 56, right = width - 24, named = Object.entries(marks).sort((a, b) => a[1] - b[1]);
  const top = 16 + 14 * named.length, base = top + 150;
  const most = niceTop(Math.max(...bins.map(([, count]) => count)));
  const at = (exponent) => left + ((exponent - first) / (last - first)) * (right - left);
  const parts = [0, 0.5, 1].flatMap((share) => {
    const y = base - share * (base - top);
    return [svg("line", { class: share ? "mark" : "base", x1: left, x2: right, y1: y, y2: y }), text(short(share * most), left - 8, y + 4, { class: "faint", "text-anchor": "end" })];
  });
  const decades = (last - first) / each;
  const every = Math.ceil((decades + 1) / Math.max(2, Math.floor((right - left) / 80)));
  for (let decade = 0; decade <= decades; decade += every) {
    const x = at(first + decade * each);
    parts.push(svg("line", { class: "mark", x1: x, x2: x, y1: top, y2: base }), text(span(10 ** (first / each + decade)), x, base + 16, { class: "faint", "text-anchor": "middle" }));
  }
  const bar = at(first + 1) - at(first);
  for (const [number, count] of bins) {
    const height = (count / most) * (base - top);
    parts.push(box("plot", at(number), base - height, Math.max(0.8, bar - 1), height, `${span(10 ** (number / each))} to ${span(10 ** ((number + 1) / each))}: ${count.toLocaleString("en")} ${unit}`));
  }
  named.forEach(([name, value], index) => {
    const x = Math.min(Math.max(at(Math.log10(Math.max(value, 1e-9)) * each), left), right);
    const y = 12 + 14 * index, atEnd = x > right - 110;
    parts.push(svg("line", { class: "limit", x1: x, x2: x, y1: y - 8, y2: base }), text(`${name} ${span(value)}`, x + (atEnd ? -5 : 5), y, { "text-anchor": atEnd ? "end" : "start" }));
  });
  return drawing(width, base + 24, parts);
}

function matrix({ down, across, unit, rows, columns, cells, marked }, width) {
  const left = width < NARROW ? 100 : nameWidth(rows, width), longest = 18;
  const each = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, (width - left - 60) / columns.length));
  const top = 34 + 4.9 * Math.max(...columns.map((name) => cut(name, longest).length));
  const most = Math.max(...cells.map(([, , value]) => value), 1e-9);
  const parts = [text(`${down} ↓ ${across} →`, 0, 12, { class: "faint" }), box("track", left, top, each * columns.length, each * rows.length)];
  parts.push(...rows.map((name, index) => told(text(cut(name, Math.floor((left - 10) / CHARACTER)), left - 10, top + (index + 0.5) * each + 4, { "text-anchor": "end" }), name)));
  parts.push(...columns.map((name, index) => told(svg("text", { transform: `translate(${left + (index + 0.5) * each} ${top - 6}) rotate(-45)` }, cut(name, longest)), name)));
  for (const [row, column, value] of cells) {
    const x = left + column * each, y = top + row * each, share = 0.12 + (0.88 * value) / most;
    parts.push(box("plot", x + 0.5, y + 0.5, each - 1, each - 1, `${rows[row]} to ${columns[column]}: ${value.toLocaleString("en")} ${unit}`, { "fill-opacity": share }));
    if (each >= NUMBERED) parts.push(text(short(value), x + each / 2, y + each / 2 + 4, { "text-anchor": "middle", class: share > 0.6 ? "on-plot" : "" }));
  }
  parts.push(...marked.map(([row, column]) => box("framed", left + column * each + 1, top + row * each + 1, each - 2, each - 2)));
  return drawing(Math.max(width, left + each * columns.length + 60), top + each * rows.length + 10, parts);
}

const KINDS = { strips, timeline, distribution, matrix };

// Draw the data of a plot for a width in pixels; null if there is nothing to draw. A file that the pipelines have not
// written can contain anything, so this can throw.
export const plotted = (data, width) => (data.kind ? KINDS[data.kind](data, width) : null);
