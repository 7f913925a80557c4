// The page of the console. The server sends its whole state every second; each view draws its part of it.

const VIEWS = ["overview", "mesh", "streams", "topics", "tail", "log", "results"];
const KEPT = 180; // samples kept for the charts, one per second; the server sends those from before the page was opened
const FEW = 8; // rows of a result that are shown until the user asks for all
const $ = (id) => document.getElementById(id);
let state = null;
let connected = false;
let view = "overview";
let chosen = null; // the UUID of the selected node of the mesh
const past = { time: [], rate: [], lag: [] };
const rates = new Map(); // the recent rates of each stream
const lags = new Map(); // the recent lags of each client

// Building blocks

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const number = (value) => Math.round(value).toLocaleString("en");

function size(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024) return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(1)} TiB`;
}

function ago(seconds) {
  if (seconds < 60) return `${Math.max(0, Math.round(seconds))} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

function lasted(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const hash = (value) => value.toString(16).padStart(4, "0");

function keep(map, key, value) {
  const values = map.get(key) || [];
  values.push(value);
  if (values.length > KEPT) values.shift();
  map.set(key, values);
}

const clock = (seconds) => new Date(seconds * 1000).toTimeString().slice(0, 8);
const spoken = (name) => name.replaceAll("_", " ");

// Show control characters, which a page would hide, as escapes.
function escaped(text) {
  const parts = text.split(/([\x00-\x08\x0b-\x1f\x7f]+)/);
  return parts.map((part, index) => index % 2 === 0 ? part : element("span", { class: "bytes" },
    [...part].map((one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, "0")}`).join("")));
}

// A table is a list of columns and a list of rows; cells are texts or elements. A column whose name ends in # is aligned
// to the right.
function draw(table, columns, rows, empty) {
  const head = element("tr", {}, ...columns.map((name) =>
    element("th", { scope: "col", class: name.endsWith("#") ? "n" : null }, spoken(name.replace("#", "")))));
  const body = rows.map((row) => element("tr", row.attributes || {}, ...row.cells.map((cell, index) => {
    const made = element("td", { class: columns[index].endsWith("#") ? "n" : row.classes?.[index] });
    made.append(...(cell === null || cell === undefined ? [] : Array.isArray(cell) ? cell : [cell]));
    return made;
  })));
  if (!rows.length) body.push(element("tr", {}, element("td", { colspan: columns.length, class: "empty" }, empty)));
  replace(table, element("thead", {}, head), element("tbody", {}, ...body));
}

// Replace the content of a place; the element that has the focus keeps it.
function replace(place, ...children) {
  const held = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children);
  if (held !== undefined) place.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
}

function spark(values, name) {
  const canvas = element("canvas", { class: "spark", width: 360, height: 52, role: "img",
    "aria-label": `${name}: now ${number(values.at(-1) || 0)}` });
  const pen = canvas.getContext("2d");
  const most = Math.max(...values, 1);
  const x = (index) => 358 - (356 * (values.length - 1 - index)) / (KEPT - 1);
  const y = (value) => 48 - (44 * value) / most;
  pen.beginPath();
  values.forEach((value, index) => (index ? pen.lineTo(x(index), y(value)) : pen.moveTo(x(index), y(value))));
  pen.strokeStyle = colour("accent");
  pen.lineWidth = 2;
  pen.stroke();
  pen.lineTo(358, 50);
  pen.lineTo(x(0), 50);
  pen.fillStyle = colour("accent") + "22";
  pen.fill();
  return canvas;
}

const pill = (text, kind = text) => element("span", { class: `pill ${kind}` }, text);

// Overview

let charts = null;

function chart(place, label, format) {
  const axis = { stroke: () => colour("faint"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false } };
  return new uPlot({
    width: place.clientWidth || 400, height: 200, cursor: { y: false }, legend: { show: false },
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(format) }],
    series: [{}, { label, stroke: () => colour("accent"), width: 2, points: { show: false }, fill: () => colour("accent") + "22" }],
  }, [[], []], place);
}

function drawOverview() {
  const totals = state.zeps?.totals || { rate: 0, streams: 0, octets: 0 };
  const gears = state.zeps?.gears || {};
  const bad = Object.values(state.zeps?.invalid || {}).reduce((sum, count) => sum + count, 0)
    + (state.mcollective?.counters.errors || 0);
  const cards = [
    [number(totals.rate), "messages per second"],
    [number(totals.streams), "streams"],
    [size(totals.octets), "in journals"],
    [`${number(gears.live || 0)} / ${number(Object.values(gears).reduce((sum, count) => sum + count, 0))}`, "subscribers live"],
    [number(state.zre?.totals.peers || 0), "peers in the mesh"],
    [number(state.mcollective?.clients || 0), "fleet clients"],
    [number(bad), "invalid requests"],
    [size(state.process.memory), "memory"],
    [lasted(state.time - state.started), "up"],
  ];
  $("cards").replaceChildren(...cards.map(([value, name]) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, name))));
  charts ||= { rate: chart($("rate-chart"), "rate", (value) => number(value)), lag: chart($("lag-chart"), "lag", (value) => value.toFixed(0)) };
  charts.rate.setData([past.time, past.rate]);
  charts.lag.setData([past.time, past.lag]);
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

// Mesh: the server in the middle, its peers around it

function drawMesh() {
  const zre = state.zre;
  const peers = (zre?.peers || []).slice().sort((a, b) => a.name.localeCompare(b.name) || a.uuid.localeCompare(b.uuid));
  const pick = (node) => { chosen = chosen === node.uuid ? null : node.uuid; drawMesh(); };
  const named = (peer) => {
    const button = element("button", { class: "plain", type: "button", "data-key": peer.uuid, "aria-pressed": String(peer.uuid === chosen) }, peer.name);
    button.addEventListener("click", () => pick(peer));
    return button;
  };
  draw($("peers"), ["name", "groups", "services", "endpoint"], peers.map((peer) => ({
    attributes: { class: peer.uuid === chosen ? "chosen" : null },
    cells: [named(peer), peer.groups.join(", "), Object.keys(peer.headers).filter((key) => key.startsWith("X-")).join(", "), peer.endpoint],
    classes: ["", "faint", "faint", "mono faint"] })), zre ? "no peers yet: start a node on the same network" : "the mesh is off");
  const nodes = zre ? [{ ...zre, self: true, x: 0, y: 0 }] : [];
  peers.slice(0, 120).forEach((peer, index, shown) => {
    const ring = shown.length > 40 && index % 2 ? 0.72 : 1;
    const angle = (2 * Math.PI * index) / shown.length - Math.PI / 2;
    nodes.push({ ...peer, x: 420 * ring * Math.cos(angle), y: 250 * ring * Math.sin(angle) });
  });
  const byHash = new Map();
  for (const node of nodes) byHash.set(node.hash, byHash.has(node.hash) ? null : node); // logs cannot tell two nodes with the same hash apart
  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  if (!nodes.some((node) => node.uuid === chosen)) chosen = null;
  const away = (...some) => (chosen && !some.some((node) => node.uuid === chosen) ? " away" : "");
  const line = (a, b, attributes) => svg("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, ...attributes, class: (attributes.class || "") + away(a, b) });
  const parts = nodes.slice(1).map((node) => line(nodes[0], node, {}));
  const talk = state.log?.talk || [];
  const most = Math.max(...talk.map(([, , count]) => count), 1);
  const crowd = chosen ? 1 : Math.max(0.25, Math.min(1, 80 / Math.max(talk.length, 1))); // the more lines, the thinner
  for (const [from, to, count] of talk) {
    const a = byHash.get(from), b = byHash.get(to);
    const share = count / most;
    if (a && b) parts.push(line(a, b, { class: "talk", "stroke-width": 0.8 + 3 * share * crowd, "stroke-opacity": (0.08 + 0.6 * share * share) * crowd }));
  }
  for (const node of nodes) {
    const circle = svg("circle", { cx: node.x, cy: node.y, r: node.self ? 22 : nodes.length > 60 ? 8 : 13,
      class: (node.self ? "self" : "") + (node.uuid === chosen ? " chosen" : "") });
    circle.append(svg("title", {}, `${node.name}, ${node.endpoint || "this server"}`));
    circle.addEventListener("click", () => pick(node));
    parts.push(circle);
    // Names are outside the ring, away from the lines.
    const above = node.y < -20 && !node.self;
    if (nodes.length <= 60 || node.self) parts.push(svg("text", { x: node.x, y: node.y + (node.self ? 44 : above ? -22 : 32) }, node.name));
    if (node.groups.length && nodes.length <= 30) parts.push(svg("text", { x: node.x, y: node.y + (above ? -40 : 48), class: "small" }, node.groups.join(", ")));
  }
  const picked = nodes.find((node) => node.uuid === chosen);
  const heard = talk.filter(([from, to]) => picked && byHash.get(from) && byHash.get(to) && [from, to].includes(picked.hash));
  const others = new Set(heard.flatMap(([from, to]) => [from, to]).filter((one) => one !== picked.hash));
  $("mesh-note").textContent = picked
    ? `${picked.name}: ${number(heard.reduce((sum, [, , count]) => sum + count, 0))} recent messages, ${number(others.size)} ${others.size === 1 ? "peer" : "peers"}`
    : peers.length ? "select a node to see its messages" : "";
  $("graph").replaceChildren(...parts);
}

// Streams

function drawStreams() {
  const streams = state.zeps?.streams || [];
  const elsewhere = state.zeps?.elsewhere || [];
  const owned = elsewhere.length > 0 || streams.some((one) => one.owner);
  const row = (one) => [element("a", { href: `#tail:${encodeURIComponent(one.id)}`, title: "follow this stream", "data-key": one.id }, ...escaped(one.stream)), number(Math.max(0, one.last - one.first + 1 - one.removed)), number(one.last), size(one.octets), number(one.rate),
    spark(rates.get(one.id) || [0], `rate of ${one.stream}`), number(one.subscribers),
    one.readers ? element("span", { title: Object.entries(one.named).map(([name, one]) => `${name}: ${number(one.lag)} messages, ${number(one.behind)} s behind`).join("\n") }, `${number(one.readers)}, ${number(one.reader_lag)} behind`) : "-",
    one.last_time && one.last >= one.first ? ago(state.time - one.last_time / 1e6) : "never",
    one.held ? pill(one.held, "held") : pill(one.multicast || one.sync), ...(owned ? [one.owner ? `${one.owner} (here)` : "here"] : [])];
  const other = (one) => [element("span", {}, ...escaped(one.stream)), "-", "-", "-", "-", "-", "-", "-", "-", pill(one.sync), one.owner || "none"];
  draw($("stream-table"), ["stream", "messages#", "last#", "size#", "per second#", "last 3 minutes", "subscribers#", "named#", "newest", "sync", ...(owned ? ["owner"] : [])],
    [...streams.map((one) => ({ cells: row(one) })), ...elsewhere.map((one) => ({ cells: other(one) }))], "no streams yet: zambezi pub creates one");
  const clients = (state.zeps?.clients || []).filter((one) => one.patterns);
  draw($("client-table"), ["client#", "from", "user", "stream", "pattern", "gear", "lag#", "last 3 minutes", "credit#", "delivered#"],
    clients.map((one) => ({
      cells: [one.client, one.address || "this process", one.user || "-", one.stream, one.patterns.map((pattern) => pattern || "all").join(", "),
        pill(one.gear), number(one.lag), spark(lags.get(one.client) || [0], `lag of client ${one.client}`),
        size(Math.max(0, one.credit)), number(one.delivered)] })), "no subscribers");
}

// Topics

function drawTopics() {
  draw($("topic-table"), ["topic", "subscribers#", "messages#", "deliveries#", "journalled", "subscribed by"],
    (state.mcollective?.topics || []).map((one) => ({
      cells: [one.topic, number(one.subscribers), number(one.messages), number(one.deliveries), one.kept ? "yes" : "",
        one.clients.slice(0, 5).map((client) => client.user || client.identity.slice(0, 24)).join(", ") + (one.subscribers > 5 ? ", ..." : "")],
      classes: ["mono", "", "", "", "", "faint wrap"] })), state.mcollective ? "no topics yet" : "the middleware is off");
}

// Tail

let tail = null;
let tailRows = [];

function drawTailForm() {
  const select = $("tail-stream");
  const streams = state.zeps?.streams || [];
  const ids = streams.map((one) => one.id);
  if (ids.join("\n") !== select.dataset.ids) {
    const before = select.value;
    select.replaceChildren(...streams.map((one) => element("option", { value: one.id }, one.stream)));
    if (ids.includes(before)) select.value = before;
    select.dataset.ids = ids.join("\n");
  }
}

function drawTail() {
  draw($("tail-table"), ["sequence#", "time", "key", "body"], tailRows.map((one) => ({
    cells: [number(one.sequence), one.time.replace("T", " ").slice(0, 23), escaped(one.key), [...escaped(one.body), one.size > one.shown ? element("span", { class: "faint" }, ` … ${size(one.size)}`) : ""]], classes: ["", "mono", "mono", "mono wrap"] })),
    tail ? "waiting for messages" : "choose a stream and press Follow");
  if (tail) $("tail-scroll").scrollTop = $("tail-scroll").scrollHeight;
}

function follow() {
  tail?.close();
  tailRows = [];
  if (tail) {
    tail = null;
    $("tail-go").textContent = "Follow";
    $("tail-note").textContent = "";
    return drawTail();
  }
  let since = $("tail-since").value;
  if (/^\d+$/.test(since)) since = new Date(Date.now() - Number(since) * 1000).toISOString();
  const query = new URLSearchParams({ id: $("tail-stream").value, pattern: $("tail-pattern").value, since });
  tail = new EventSource(`api/tail?${query}`);
  let drawn = false;
  tail.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.error) {
      $("tail-note").textContent = message.error;
      tail.close();
      return;
    }
    tailRows.push(message);
    if (tailRows.length > 500) tailRows.shift();
    if (!drawn) {
      drawn = true;
      requestAnimationFrame(() => { drawn = false; drawTail(); });
    }
  };
  $("tail-go").textContent = "Stop";
  $("tail-note").textContent = "";
  drawTail();
}

// Log

async function drawLog() {
  const logs = await (await fetch("api/log")).json();
  const names = new Map();
  for (const node of [state.zre, ...(state.zre?.peers || [])].filter(Boolean)) names.set(node.hash, names.has(node.hash) ? null : node.name);
  const called = (value) => (value ? hash(value) + (names.get(value) ? ` ${names.get(value)}` : "") : "-");
  const level = $("log-level").value, event = $("log-event").value, text = $("log-text").value.toLowerCase();
  const rows = logs.map((one) => ({ ...one, from: called(one.node), to: called(one.peer) })).filter((one) =>
    (!level || one.level === level) && (!event || one.event === event) && (!text || `${one.from} ${one.to} ${one.text}`.toLowerCase().includes(text)));
  $("log-note").textContent = `${number(rows.length)} of the last ${number(logs.length)}`;
  draw($("log-table"), ["time", "level", "event", "node", "peer", "text"], rows.reverse().map((one) => ({
    cells: [new Date(one.time).toISOString().replace("T", " ").slice(0, 23), pill(one.level), one.event, one.from, one.to, one.text],
    classes: ["mono", "", "", "mono", "mono", "wrap"] })), "no logs yet: a node sends logs if it was started with log=True");
}

// Results of the pipelines

let results = [];
let resultsDue = 0;
const opened = new Set(); // the names of the results whose rows are all shown

async function drawResults() {
  if (state.time >= resultsDue) {
    resultsDue = state.time + 5;
    results = await (await fetch("api/results")).json();
  }
  const groups = new Map(); // by pipeline: the part of a title before the colon
  for (const one of results) {
    const [group, ...rest] = (one.title || one.name).split(": ");
    groups.set(group, [...(groups.get(group) || []), { ...one, title: rest.join(": ") || group }]);
  }
  replace($("result-list"), ...[...groups].flatMap(([group, some]) => [
    element("h2", { class: "group" }, group, element("span", {}, ago(state.time - Math.max(...some.map((one) => one.time))))),
    ...some.sort((a, b) => a.time - b.time || a.name.localeCompare(b.name)).map(drawResult),
  ]));
  if (!results.length) $("result-list").replaceChildren(element("div", { class: "panel empty" }, "no results yet: zambezi pipeline run writes some"));
}

function drawResult(one) {
  const rows = one.rows || [];
  const shown = opened.has(one.name) ? rows : rows.slice(0, FEW);
  const table = element("table");
  draw(table, one.columns || [], shown.map((row) => ({ cells: row.map((cell) => (typeof cell === "number" ? cell.toLocaleString("en") : String(cell))) })), "none");
  const notes = [...(one.notes || [])];
  if (one.more) notes.push("the files have more rows");
  const foot = element("p", { class: "faint" }, notes.join("; "));
  if (rows.length > FEW) {
    const button = element("button", { class: "plain", type: "button", "data-key": one.name }, opened.has(one.name) ? `show the first ${FEW} rows` : `show all ${number(rows.length)} rows`);
    button.addEventListener("click", () => { if (!opened.delete(one.name)) opened.add(one.name); drawResults(); });
    foot.prepend(button, notes.length ? "; " : "");
  }
  return element("div", { class: "panel" }, element("h3", {}, one.title), table, foot.hasChildNodes() ? foot : null);
}

// The views

const DRAW = { overview: drawOverview, mesh: drawMesh, streams: drawStreams, topics: drawTopics, tail: drawTailForm, log: drawLog, results: drawResults };

function show(hash) {
  const [name, stream] = hash.split(":"); // the second is the id of a stream
  view = VIEWS.includes(name) ? name : "overview";
  for (const one of VIEWS) $(one).hidden = one !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (state) DRAW[view]();
  if (stream !== undefined) tailStream(decodeURIComponent(stream));
}

// Follow a stream, beginning ten minutes ago.
function tailStream(id) {
  $("tail-stream").value = id;
  $("tail-pattern").value = "";
  $("tail-since").value = "600";
  if (tail) follow(); // ends the current one
  follow();
}

// Every view says what is wrong: a lost connection, or the reasons why the server is not ready.
function drawAlert() {
  const problems = connected ? state.problems : ["the console does not answer, and is asked again; the page shows its last state"];
  const status = !connected ? "no connection" : problems.length ? "not ready" : "live";
  $("link").className = status === "live" ? "up" : "down";
  if ($("link").textContent !== status) $("link").textContent = status;
  const shown = problems.slice(0, 3).join("\n") + (problems.length > 3 ? `\nand ${number(problems.length - 3)} more: see /readyz` : "");
  if ($("alert").textContent !== shown) $("alert").replaceChildren(...escaped(shown)); // a screen reader reads each change aloud
  $("alert").hidden = !problems.length;
}

function received(event) {
  state = JSON.parse(event.data);
  connected = true;
  drawAlert();
  past.time.push(state.time);
  past.rate.push(state.zeps?.totals.rate || 0);
  past.lag.push(state.process.loop_lag * 1000);
  for (const values of Object.values(past)) if (values.length > KEPT) values.shift();
  for (const one of state.zeps?.streams || []) keep(rates, one.id, one.rate);
  const here = new Set((state.zeps?.clients || []).map((one) => one.client));
  for (const one of state.zeps?.clients || []) if (one.patterns) keep(lags, one.client, one.lag);
  for (const client of lags.keys()) if (!here.has(client)) lags.delete(client);
  // Do not replace a table while the user has selected text in it.
  if (document.getSelection().isCollapsed) DRAW[view]();
}

function toggleTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
  charts?.rate.redraw();
  charts?.lag.redraw();
  if (state) DRAW[view]();
}

document.querySelector("nav").append(...VIEWS.map((name, index) =>
  element("a", { href: `#${name}` }, name[0].toUpperCase() + name.slice(1), element("kbd", { "aria-hidden": "true" }, String(index + 1)))));
$("theme").addEventListener("click", toggleTheme);
$("tail-form").addEventListener("submit", (event) => { event.preventDefault(); follow(); });
$("log-form").addEventListener("submit", (event) => event.preventDefault());
$("log-form").addEventListener("input", drawLog);
addEventListener("hashchange", () => show(location.hash.slice(1)));
addEventListener("resize", () => {
  for (const [name, one] of Object.entries(charts || {})) one.setSize({ width: $(`${name}-chart`).clientWidth, height: 200 });
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") document.activeElement.blur();
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) return;
  const index = "1234567".indexOf(event.key);
  if (index >= 0 && event.key) location.hash = VIEWS[index];
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") $("help").showModal();
  else if (event.key === "/") {
    $(view).querySelector("input, select")?.focus();
    event.preventDefault();
  }
});
drawTail();
const before = await (await fetch("api/history")).json();
for (const name of Object.keys(past)) past[name] = before[name];
for (const [id, values] of Object.entries(before.streams)) rates.set(id, values);
const live = new EventSource("api/live");
live.onerror = () => {
  connected = false;
  drawAlert();
};
live.onmessage = (event) => {
  received(event);
  if (live.onmessage !== received) show(location.hash.slice(1));
  live.onmessage = received;
};
