// The page of the console. The address says what it shows: #view?filter=...&sort=...&page=..., or #stream/ID. The server
// sends that view, first whole and then the differences, every second; the page draws it.

import { $, ago, changeColours, chart, day, draw, element, escaped, lasted, number, pill, rate, replace, resizeCharts, size, spark, spoken } from "./parts.js";
import { choose, drawGraph, isChosen } from "./mesh.js";
import { openOrder } from "./orders.js";
import { drawPipelines } from "./pipelines.js";
import { closeStream, drawStream, follow, openStream, startOrStop } from "./stream.js";

const VIEWS = ["overview", "streams", "clients", "mesh", "topics", "brokers", "log", "pipelines"];
const SERVER_VIEWS = { brokers: "elsewhere", pipelines: "overview" }; // the server's name of a view, if it is another one
const PAGE = 50; // rows of a page, as the server makes them
const KEPT = 4000; // samples of the charts
let state = null;
let connected = false;
let refusal = ""; // why the console refuses this page, if it does
let view = "overview";
let look = {}; // filter, sort, page; the log has its source, and the pipelines the chosen one
let stream = null; // the id of the stream of this page
let live = null;
let asked = ""; // the query of the connection
let before = null; // the counters one second ago
let rates = { out: 0, busy: 0 }; // since then
const past = { time: [], in: [], out: [], lag: [] };
let latency = { time: [], median: [], p99: [] }; // milliseconds from publish to deliver, as the server has measured them
let latencyDue = 0;

// The address

function readAddress() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [name, id] = path.split("/");
  stream = name === "stream" && id ? decodeURIComponent(id) : null;
  view = stream !== null ? "stream" : VIEWS.includes(name) ? name : "overview";
  look = Object.fromEntries(new URLSearchParams(query));
}

function go(changes) {
  const wanted = Object.entries({ ...look, ...changes }).filter(([, value]) => value);
  const query = new URLSearchParams(wanted).toString();
  const hash = `#${view}${query ? `?${query}` : ""}`;
  if (location.hash !== hash) history.replaceState(null, "", hash);
  show();
}

function show() {
  readAddress();
  for (const one of [...VIEWS, "stream"]) $(one).hidden = one !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view === "stream" ? "streams" : view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  for (const one of document.querySelectorAll(`#${view} .filter input`)) if (one !== document.activeElement) one.value = look.filter || "";
  if (view === "log") $("log-source").value = look.source || "log";
  connect();
  if (stream !== null) openStream(stream);
  else closeStream();
  redraw();
}

// The connection

const serverView = () => (view === "log" ? look.source || "log" : SERVER_VIEWS[view] || view);

function connect() {
  const { filter = "", sort = "", page = "" } = look;
  const wanted = { view: serverView(), ...(stream !== null ? { id: stream } : {}), ...(filter ? { filter } : {}), ...(sort ? { sort } : {}), ...(page ? { page } : {}) };
  const query = new URLSearchParams(wanted).toString();
  if (query === asked && live && live.readyState !== EventSource.CLOSED) return;
  live?.close();
  asked = query;
  const mine = live = new EventSource(`api/live?${query}`);
  mine.onerror = () => {
    connected = false;
    drawAlert();
    if (mine.readyState !== EventSource.CLOSED) return;
    findRefusal();
    setTimeout(() => { if (mine === live) { asked = ""; connect(); } }, 3000);
  };
  mine.onmessage = (event) => {
    const { whole, patch } = JSON.parse(event.data);
    state = whole || merge(state, patch);
    connected = true;
    refusal = "";
    received();
  };
}

// An EventSource that was refused does not say why. The console does, if it is asked in another way.
async function findRefusal() {
  try {
    const answer = await fetch("api/state");
    answer.body?.cancel();
    if (connected) return;
    refusal = answer.status === 401 ? `this console does not accept the token of this page any more: open ${location.origin}/?token=... with its new token`
      : answer.status === 403 ? "this console refuses the requests of this page: its log and its configuration say why" : "";
  } catch {
    refusal = "";
  }
  drawAlert();
}

// A JSON Merge Patch (RFC 7396).
function merge(value, patch) {
  for (const [key, one] of Object.entries(patch)) {
    if (one === null) delete value[key];
    else if (typeof one === "object" && !Array.isArray(one) && typeof value[key] === "object" && value[key] !== null) merge(value[key], one);
    else value[key] = one;
  }
  return value;
}

function received() {
  const passed = before ? state.time - before.time : 0;
  if (passed > 0.2 || !before) {
    const now = { time: state.time, delivered: state.zeps ? state.zeps.delivered : 0, processor: state.process.processor };
    const since = (name) => (before ? Math.max(0, now[name] - before[name]) / passed : 0);
    rates = { out: since("delivered"), busy: since("processor") };
    const isFirst = !before; // no rates are known yet
    before = now;
    const sample = { time: state.time, in: state.zeps?.totals.rate || 0, out: rates.out, lag: state.process.loop_lag * 1000 };
    for (const [name, values] of Object.entries(past)) {
      if (!isFirst) values.push(sample[name]);
      if (values.length > KEPT) values.shift();
    }
  }
  drawAlert();
  if (document.getSelection().isCollapsed) redraw(); // do not replace a table while the user has selected text in it
}

function redraw() {
  if (state && (state.view === serverView()) && (stream === null || state.detail === undefined || state.detail.id === stream)) DRAW[view]();
}

// Every view says what is wrong: a lost connection, or the reasons why the server is not ready.
function drawAlert() {
  const problems = connected ? state.problems : [`${refusal || "the console does not answer, and is asked again"}; the page shows its last state`];
  const more = connected ? state.problem_count - problems.length : 0;
  const status = !connected ? (refusal ? "refused" : "no connection") : problems.length ? "not ready" : "live";
  $("link").className = status === "live" ? "up" : "down";
  if ($("link").textContent !== status) $("link").textContent = status;
  const shown = problems.join("\n") + (more > 0 ? `\nand ${number(more)} more: see /readyz` : "");
  if ($("alert").dataset.text !== shown) $("alert").replaceChildren(...escaped(shown)); // a screen reader reads each change aloud
  $("alert").dataset.text = shown;
  $("alert").hidden = !problems.length;
}

// Overview

let charts = null;

async function readHistory() {
  const told = await (await fetch("api/history")).json();
  latency = { time: told.time, median: told.median, p99: told.p99 };
  return told;
}

// The newest median and 99th percentile. They are upper limits.
const delay = () => (latency.median.at(-1) == null ? "-" : `${latency.median.at(-1)} / ${latency.p99.at(-1)}`);

function drawOverview() {
  const totals = state.zeps?.totals || { rate: 0, streams: 0, octets: 0 };
  const gears = state.zeps?.gears || {};
  const cards = [
    [rate(totals.rate), "in, messages per second"],
    [rate(rates.out), "out, messages per second"],
    [delay(), "ms to deliver at most, median / 99 %"],
    [number(totals.streams), "streams"],
    [size(totals.octets), "in journals"],
    [`${number(gears.live)} / ${number(Object.values(gears).reduce((sum, count) => sum + count, 0))}`, "subscribers live"],
    [number(state.zre?.totals.peers), "peers in the mesh"],
    [number(state.mcollective?.clients), "fleet clients"],
    [size(state.process.memory), "memory"],
    [`${Math.round(rates.busy * 100)} %`, "of a processor"],
    [state.disk_free === undefined ? "-" : size(state.disk_free), "free on the disk"],
    [lasted(state.time - state.started), "up"],
    [state.version, "version"],
  ];
  $("cards").replaceChildren(...cards.map(([value, name]) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, name))));
  if (state.time >= latencyDue) {
    latencyDue = state.time + 10;
    readHistory().catch(() => {}); // the alert says that the console does not answer
  }
  charts ||= { rate: chart($("rate-chart"), ["in", "out"], rate), latency: chart($("latency-chart"), ["median", "99 %"], rate), lag: chart($("lag-chart"), ["lag"], rate) };
  charts.latency.set([latency.time, latency.median, latency.p99]);
  charts.rate.set([past.time, past.in, past.out]);
  charts.lag.set([past.time, past.lag]);
  draw($("services"), ["service", "endpoint"],
    Object.entries(state.endpoints).map(([name, endpoint]) => ({ cells: [name, endpoint], classes: ["", "mono"] })), "no service runs");
  draw($("troubles"), ["service", "problem", "count#"], troubles().map((cells) => ({ cells })), "none so far");
}

// The counters of problems that are not zero.
function troubles() {
  const { zeps, mcollective, zre, log } = state;
  const kinds = {
    zeps: { ...Object.fromEntries(Object.entries(zeps?.invalid || {}).map(([kind, count]) => [`refused: ${kind}`, count])),
      "connections refused": zeps?.refused, "handshakes failed": zeps?.handshakes_failed,
      "connections cut off": zeps?.cut_off,
      "streams that cannot be written": zeps?.totals.held },
    mcollective: Object.fromEntries(["errors", "malformed", "denied", "absent", "expired", "missed", "dropped", "lost", "refused", "handshakes_failed", "cut_off"]
      .map((kind) => [spoken(kind), mcollective?.counters[kind]])),
    zre: Object.fromEntries(Object.entries(zre?.counters || {}).map(([kind, count]) => [spoken(kind), count])),
    log: { lost: log?.lost, discarded: log?.discarded },
  };
  return Object.entries(kinds).flatMap(([service, counts]) =>
    Object.entries(counts).filter(([, count]) => count).map(([problem, count]) => [service, problem, number(count)]));
}

// Tables of the server: filtered, sorted and cut into pages there

function drawTable(place, columns, describe, empty) {
  const { all, found, page, order, rows } = state.table;
  const sorting = { sort: look.sort || "", choose: (name, right) => go({ sort: look.sort === (right ? `-${name}` : name) ? (right ? name : `-${name}`) : (right ? `-${name}` : name), page: "" }) };
  draw($(`${place}-table`), columns, order.map((id) => ({ ...describe(rows[id], id) })), found < all ? "nothing matches the filter" : empty, sorting);
  const first = page * PAGE;
  const shown = found ? `${number(first + 1)} to ${number(first + order.length)} of ${number(found)}` : "none";
  const pages = Math.ceil(found / PAGE);
  const button = (text, to, enabled) => element("button", { type: "button", "data-key": text, disabled: enabled ? null : "", onclick: () => go({ page: to ? String(to) : "" }) }, text);
  replace($(`${place}-pages`), element("span", { role: "status" }, `${shown}${found < all ? `, ${number(all)} in all` : ""}`),
    ...(pages > 1 ? [button("Previous", page - 1, page > 0), button("Next", page + 1, page + 1 < pages)] : []));
}

const sorted = (name, sort = name, right = true) => ({ name, sort, right });
const streamLink = (id, name) => element("a", { href: `#stream/${encodeURIComponent(id)}`, "data-key": id }, escaped(name));

function drawStreams() {
  const owned = Object.values(state.table.rows).some((one) => one.owner);
  drawTable("streams", [sorted("stream", "stream", false), sorted("messages"), sorted("last"), sorted("size", "octets"), sorted("in per second", "rate"), sorted("out per second", "out"),
    "last 5 minutes", sorted("subscribers"), sorted("named readers", "readers"), sorted("newest", "newest"), "sync", ...(owned ? ["owner"] : [])],
  (one, id) => ({ cells: [streamLink(id, one.stream), number(Math.max(0, one.last - one.first + 1 - one.removed)), number(one.last), size(one.octets), rate(one.rate), rate(one.out),
    spark(one.past.length ? one.past : [0], `rate of ${one.stream}`, 30), number(one.subscribers), one.readers ? `${number(one.readers)}, ${number(one.reader_lag)} behind` : "-",
    one.newest && one.last >= one.first ? ago(state.time - one.newest) : "never", one.held ? pill(one.held, "held") : pill(one.multicast || one.sync), ...(owned ? [one.owner || "here"] : [])] }),
  state.zeps ? "no streams yet: zambezi pub creates one" : "the broker is off");
  $("stream-create").hidden = !state.takes_orders || !state.zeps;
}

function drawClients() {
  drawTable("clients", [sorted("client"), sorted("from", "address", false), sorted("user", "user", false), sorted("stream", "stream", false), "pattern", "gear", sorted("lag"), "credit#", sorted("delivered"), sorted("published")],
    (one) => ({ cells: [one.client, one.address || "this process", one.user || "-", one.stream ? streamLink(one.id, one.stream) : "-", one.patterns ? escaped(one.patterns.map((pattern) => pattern || "all").join(", ")) : "-",
      pill(one.gear), one.patterns ? number(one.lag) : "-", one.patterns ? size(Math.max(0, one.credit)) : "-", one.patterns ? number(one.delivered) : "-", number(one.published)],
    classes: ["", "mono", "", "", "mono"] }), "no clients");
}

function drawMesh() {
  const named = (uuid, name) => element("button", { class: "plain", type: "button", "data-key": uuid, "aria-pressed": String(isChosen(uuid)), onclick: () => { choose(uuid); drawMesh(); } }, escaped(name));
  drawGraph(state, drawMesh);
  drawTable("mesh", [sorted("name", "name", false), sorted("groups", "groups", false), "services", sorted("endpoint", "endpoint", false)],
    (one, uuid) => ({ attributes: { class: isChosen(uuid) ? "chosen" : null },
      cells: [named(uuid, one.name), escaped(one.groups.join(", ")), escaped(Object.keys(one.headers).filter((key) => key.startsWith("X-")).join(", ")), escaped(one.endpoint)],
      classes: ["", "faint", "faint", "mono faint"] }), state.zre ? "no peers yet: start a node on the same network" : "the mesh is off");
}

function drawTopics() {
  drawTable("topics", [sorted("topic", "topic", false), sorted("subscribers"), sorted("messages"), sorted("deliveries"), "journalled", "subscribed by"],
    (one) => ({ cells: [escaped(one.topic), number(one.subscribers), number(one.messages), number(one.deliveries), one.kept ? "yes" : "",
      escaped(one.clients.slice(0, 5).map((client) => client.user || client.identity.slice(0, 24)).join(", ") + (one.subscribers > 5 ? ", ..." : ""))],
    classes: ["mono", "", "", "", "", "faint wrap"] }), state.mcollective ? "no topics yet" : "the middleware is off");
}

function drawBrokers() {
  const { cache, copies } = state.zeps || {};
  draw($("broker-table"), ["broker", "endpoints", "streams#", "heartbeat", ""], Object.values(state.brokers || {}).map((one) => ({
    cells: [String(one.broker).slice(0, 8), escaped(one.endpoints.join(", ")), number(one.streams), `${one.heartbeat} s ago`, one.answers ? pill("this server") : ""], classes: ["mono", "mono"] })),
  "this server shares no object store: see [zeps.store]");
  const facts = { "on the disk": cache?.octets, "limit of the disk": cache?.limit || undefined, "loaded from the store": cache?.loaded, "removed from the disk": cache?.evicted, "copies of streams on the disk": copies?.octets };
  const counts = { "readers that wait": cache?.waiting, "failed reads": cache?.failed, "damaged objects": cache?.damaged, "messages that the copies lack": copies?.lag, "failed copies": copies?.failures };
  const rows = [...Object.entries(facts).map(([name, value]) => [name, value, size]), ...Object.entries(counts).map(([name, value]) => [name, value, number])];
  draw($("store-table"), ["store", "value#"], rows.filter(([, value]) => value !== undefined).map(([name, value, format]) => ({ cells: [name, format(value)] })), "no object store");
  drawTable("brokers", [sorted("stream", "stream", false), sorted("owner", "owner", false), "sync"], (one) => ({ cells: [escaped(one.stream), one.owner || "none", pill(one.sync)], classes: ["", "mono"] }), "no streams elsewhere");
}

function drawLog() {
  if (serverView() === "log") {
    drawTable("log", ["time", "level", "part", "text"], (one) => ({ cells: [day(one.time), pill(one.level), one.logger, escaped(one.text)], classes: ["mono", "", "", "wrap"] }), "nothing was logged since the console began");
    return;
  }
  const called = (value, name) => (value ? [value.toString(16).padStart(4, "0"), " ", ...escaped(name)] : "-");
  drawTable("log", ["time", "level", "event", "node", "peer", "text"], (one) => ({
    cells: [day(one.time), pill(one.level), one.event, called(one.node, one.from), called(one.peer, one.to), escaped(one.text)],
    classes: ["mono", "", "", "mono", "mono", "wrap"] }), "no logs yet: a node sends logs if it was started with log=True");
}

const DRAW = { overview: drawOverview, streams: drawStreams, clients: drawClients, mesh: drawMesh, topics: drawTopics, brokers: drawBrokers, log: drawLog, pipelines: () => drawPipelines(state, look.pipeline || "", (pipeline) => go({ pipeline })), stream: () => drawStream(state) };

// What the user does

function toggleTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  changeColours();
  redraw();
}

document.querySelector("nav").append(...VIEWS.map((name, index) =>
  element("a", { href: `#${name}` }, name[0].toUpperCase() + name.slice(1), element("kbd", { "aria-hidden": "true" }, String(index + 1)))));
$("theme").addEventListener("click", toggleTheme);
$("stream-create").addEventListener("click", () => openOrder("create", null));
$("tail-form").addEventListener("submit", (event) => { event.preventDefault(); startOrStop(); });
for (const name of ["tail-pattern", "tail-since"]) $(name).addEventListener("change", () => follow($("tail-since").value));
$("log-source").addEventListener("change", () => go({ source: $("log-source").value === "log" ? "" : $("log-source").value, page: "" }));
let typing = 0;
for (const form of document.querySelectorAll(".filter")) {
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("input").addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => go({ filter: event.target.value, page: "" }), 200);
  });
}
addEventListener("hashchange", show);
addEventListener("resize", () => { resizeCharts(); redraw(); });
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("order").open) return;
  if (event.key === "Escape") document.activeElement.blur();
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
  const index = "12345678".indexOf(event.key);
  if (index >= 0 && event.key) location.hash = VIEWS[index];
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") $("help").showModal();
  else if (event.key === "/") {
    $(view).querySelector("input, select")?.focus();
    event.preventDefault();
  }
});
readHistory().then((told) => {
  for (const [name, values] of Object.entries(past)) past[name] = [...told[name], ...values];
});
show();
