// The pipelines: their verdicts, and the plots and tables of one of them.

import { $, ago, day, draw, element, escaped, number, pill, replace } from "./parts.js";
import { plotted } from "./plots.js";

const FEW = 8; // rows of a table that are shown until the user asks for all
const EVERY = 5; // seconds between two questions
let answer = { on: true, pipelines: [], problems: [] };
let results = [];
let due = 0;
let drawn = ""; // what the details show
const opened = new Set(); // the names of the tables whose rows are all shown

export async function drawPipelines(state, wanted, choose) {
  if (state.time >= due || (wanted && wanted !== answer.chosen)) {
    due = state.time + EVERY;
    const query = new URLSearchParams({ pipeline: wanted, stamp: answer.stamp || "" });
    try {
      const reply = await fetch(`api/results?${query}`);
      if (!reply.ok) return;
      answer = await reply.json();
    } catch { return; /* the alert says that the console does not answer */ }
    if (answer.results || !answer.chosen) results = answer.results || [];
  }
  drawList(state, choose);
  drawDetails();
}

const verdict = (healthy) => (healthy === true ? pill("healthy", "live") : healthy === false ? pill("not healthy", "held") : pill("no verdict"));

function drawList(state, choose) {
  const name = (one) => element("button", { class: "plain", type: "button", "data-key": one.pipeline, "aria-pressed": String(one.pipeline === answer.chosen), onclick: () => choose(one.pipeline) }, escaped(one.pipeline));
  const why = (one) => [...escaped(one.why), one.reasons > 1 ? element("span", { class: "faint" }, `, and ${number(one.reasons - 1)} more`) : ""];
  draw($("pipeline-table"), ["pipeline", "verdict", "when", "why"], answer.pipelines.map((one) => ({
    attributes: { class: one.pipeline === answer.chosen ? "chosen" : null }, cells: [name(one), verdict(one.healthy), ago(state.time - one.time), why(one)], classes: ["", "", "", "wrap why"] })),
  answer.on ? "no results yet: zambezi pipeline run NAME --plots --results DIR writes some" : 'set [console] results = "DIR", and run pipelines with --results DIR');
  replace($("pipeline-problems"), ...answer.problems.map((one) => element("p", { class: "problem" }, escaped(one))));
}

// The details are drawn again if they or the width have changed: not every second.
function drawDetails() {
  const place = $("pipeline-details");
  const wanted = [answer.stamp, place.clientWidth, [...opened].join("\n")].join("\n");
  if (drawn === wanted || !place.clientWidth) return; // a view that is hidden has no width
  drawn = wanted;
  if (!results.length) return place.replaceChildren();
  const newest = Math.max(...results.map((one) => one.time));
  const kinds = { verdict: drawReasons, plots: (one) => drawPlots(one, newest, place.clientWidth), table: drawResult };
  replace(place, element("h2", { class: "group" }, escaped(answer.chosen), element("span", {}, `${utc(newest)} UTC`)), ...results.flatMap((one) => kinds[one.kind](one)),
    results.some((one) => one.kind === "plots") ? "" : element("p", { class: "faint" }, "no plots: zambezi pipeline run has the option --plots"));
}

const utc = (seconds) => day(seconds * 1000).slice(0, 19);

function drawReasons(one) {
  const table = element("table", { class: "stacked" });
  draw(table, ["about", "kind", "since", "reason"], one.reasons.map((reason) => ({ cells: [escaped(reason.about), reason.kind, escaped(reason.since || "-"), escaped(reason.reason)], classes: ["mono", "", "mono", "wrap why"] })), "");
  const more = one.more_reasons > 0 ? element("p", { class: "faint" }, `and ${number(one.more_reasons)} more reasons`) : null;
  return [element("div", { class: "panel" }, element("h3", {}, verdict(one.healthy), one.judged ? ` ${one.judged}` : ""), one.reasons.length ? table : null, more)];
}

function drawPlots(one, newest, width) {
  const old = newest - one.time > 60 ? [`of an earlier run, at ${utc(one.time)} UTC`] : [];
  return one.plots.map((plot) => {
    let made;
    try {
      made = plotted(plot.data, width - 34) || element("p", { class: "empty" }, "nothing to draw");
      made.setAttribute("role", "img");
      made.setAttribute("aria-label", plot.title);
    } catch {
      made = element("p", { class: "problem" }, "the data of this plot is not understood");
    }
    return element("figure", { class: "panel plotted" }, element("figcaption", {}, escaped(plot.title)), made, element("p", { class: "faint" }, escaped([...old, ...plot.notes].join("; "))));
  });
}

function drawResult(one) {
  const shown = opened.has(one.name) ? one.rows : one.rows.slice(0, FEW);
  const table = element("table");
  draw(table, one.columns, shown.map((row) => ({ cells: row.map((cell) => (typeof cell === "number" ? cell.toLocaleString("en") : escaped(cell ?? ""))) })), "none");
  const notes = [...one.notes, ...(one.more ? ["the table in Delta has more rows"] : [])];
  const foot = element("p", { class: "faint" }, escaped(notes.join("; ")));
  if (one.rows.length > FEW) {
    const button = element("button", { class: "plain", type: "button", "data-key": one.name, onclick: () => { if (!opened.delete(one.name)) opened.add(one.name); drawDetails(); } },
      opened.has(one.name) ? `show the first ${FEW} rows` : `show all ${number(one.rows.length)} rows`);
    foot.prepend(button, notes.length ? "; " : "");
  }
  return [element("div", { class: "panel" }, element("h3", {}, escaped(one.title)), table, foot)];
}
