// The page of one stream.

import { $, ago, chart, day, draw, element, escaped, faint, lasted, number, pill, rate, size, spark } from "./parts.js";
import { openOrder } from "./orders.js";

const ROWS = 200; // messages of the tail
const LATENCIES = 500; // messages from which the latency is computed
const LINE = 120; // characters of JSON that are shown in one line
let id = null;
let tail = null;
let rows = [];
let latencies = [];
let skipped = 0;
let charts = [];
let history = {};
let historyDue = 0;
let drawn = "";

export function openStream(stream) {
  if (id === stream) return;
  closeStream();
  id = stream;
  historyDue = 0;
  drawKeys();
  follow($("tail-since").value);
}

export function closeStream() {
  tail?.close();
  for (const one of charts) one.remove();
  [id, tail, rows, latencies, skipped, charts, drawn] = [null, null, [], [], 0, [], ""];
  drawTail();
}

export function drawStream(state) {
  const one = state.detail;
  if (!one || id !== one.id) {
    $("stream-name").replaceChildren(one ? "" : "This stream is not here: it was deleted, or another server has it.");
    $("stream-body").hidden = true;
    return;
  }
  $("stream-body").hidden = false;
  $("stream-name").replaceChildren(...escaped(one.stream), " ", one.held ? pill(one.held, "held") : pill(one.sync), one.multicast ? pill(one.multicast) : "", one.owner ? pill(one.owner) : "");
  drawOrders(state, one);
  const sorted = latencies.slice().sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  const latency = (share) => (sorted.length ? (at(share) < 10 ? at(share).toFixed(1) : number(at(share))) : "-");
  const cards = [
    [number(Math.max(0, one.last - one.first + 1 - one.removed)), "messages"], [size(one.octets), "in the journal"],
    [rate(one.rate), "in, per second"], [rate(one.out), "out, per second"], [number(one.subscribers), "subscribers"],
    [number(one.publishers), "counted publishers"], [one.newest ? ago(state.time - one.newest) : "never", "newest message"],
    [`${latency(0.5)} / ${latency(0.99)}`, "ms to deliver, median / 99 %"],
  ];
  $("stream-cards").replaceChildren(...cards.map(([value, name]) => element("div", { class: "card" }, element("b", {}, value), element("span", {}, name))));
  drawPolicy(one);
  draw($("stream-readers"), ["reader", "position#", "lag#", "behind#", "last hour", "held by"], Object.values(one.named || {}).map((reader) => ({
    cells: [escaped(reader.reader), number(reader.position), number(reader.lag), reader.lag ? lasted(reader.behind) : "-", spark(history[`reader:${reader.reader}`] || [reader.lag], `lag of ${reader.reader}`, 360), reader.holder || faint("nobody")] })),
    one.readers ? "the page shows the first 100" : "no named readers");
  draw($("stream-groups"), ["group", "members#", "lag#", "in_flight#", "returned#", "dead letters#"], Object.entries(one.shared || {}).map(([name, group]) => ({
    cells: [escaped(name), number(group.members), number(group.lag), number(group.in_flight), number(group.returned), number(group.letters)] })), one.groups ? "too many to show" : "no groups");
  draw($("stream-clients"), ["client#", "from", "user", "pattern", "gear", "lag#", "delivered#", "published#"], Object.values(one.clients).map((client) => ({
    cells: [client.client, client.address || "this process", client.user || "-", client.patterns ? escaped(client.patterns.map((pattern) => pattern || "all").join(", ")) : faint("publisher"),
      pill(client.gear), client.patterns ? number(client.lag) : "-", client.patterns ? number(client.delivered) : "-", number(client.published)], classes: ["", "mono", "", "mono"] })), "no clients");
  $("stream-client-note").textContent = one.client_count > Object.keys(one.clients).length ? `${number(Object.keys(one.clients).length)} of ${number(one.client_count)} shown` : "";
  const segments = Object.values(one.segments).sort((a, b) => b.first - a.first);
  draw($("stream-segments"), ["first#", "last#", "size#", "from", "to"], segments.map((part) => ({
    cells: [number(part.first), number(part.last), size(part.octets), part.first_time > 0 ? day(part.first_time * 1000).slice(0, 19) : "-", part.last_time > 0 ? day(part.last_time * 1000).slice(0, 19) : "-"], classes: ["", "", "", "mono", "mono"] })), "no segments");
  $("stream-segment-note").textContent = one.segment_count > segments.length ? `the latest ${number(segments.length)} of ${number(one.segment_count)} shown` : "";
  drawCharts(state);
}

function drawOrders(state, one) {
  const orders = ["publish", "edit", "trim", "delete"].filter((order) => one.orders.includes(order));
  const wanted = `${id} ${orders.join()}`;
  $("stream-orders").latest = one;
  if (drawn === wanted) return;
  drawn = wanted;
  const names = { publish: "Publish", edit: "Edit", trim: "Trim", delete: "Delete" };
  $("stream-orders").replaceChildren(...orders.map((order) => element("button", { type: "button", "data-order": order, onclick: () => openOrder(order, $("stream-orders").latest, drawKeys) }, names[order])),
    state.takes_orders ? (orders.length ? "" : faint("the rules allow no orders")) : faint("read only: orders need a token in [console]"));
}

function drawPolicy(one) {
  const facts = [
    ["sync", one.sync], ["keep", one.keep_seconds ? lasted(one.keep_seconds) : "for ever"], ["keep bytes", one.keep_bytes ? size(one.keep_bytes) : "all"],
    ["segment", size(one.segment)], ["compact", one.compact ? "yes" : "no"], ["publishers, at most", number(one.max_publishers)],
    ["named readers, at most", number(one.max_readers)], ["sequences", `${number(one.first)} to ${number(one.last)}`], ["incarnation", one.incarnation],
  ];
  draw($("stream-policy"), ["setting", "value"], facts.map((cells) => ({ cells, classes: ["", "mono"] })), "");
}

async function drawCharts(state) {
  if (state.time >= historyDue) {
    historyDue = state.time + 10;
    const wanted = id;
    const found = await (await fetch(`api/history?id=${encodeURIComponent(wanted)}`)).json();
    if (wanted !== id) return;
    history = found;
    const times = (found.in || []).map((_, index, all) => state.time - (all.length - 1 - index) * found.step);
    const readers = Object.keys(found).filter((name) => name.startsWith("reader:")).slice(0, 5);
    for (const one of charts) one.remove();
    charts = [chart($("stream-rates"), ["in", "out"], rate), chart($("stream-lags"), ["furthest behind", ...readers.map((name) => name.slice(7))])];
    charts[0].set([times, found.in || [], found.out || []]);
    $("stream-history-note").hidden = !found.cut;
    $("stream-history-note").textContent = found.cut ? `some series of this stream are missing: the console keeps at most ${number(found.cut)}` : "";
    const filled = (values) => times.map((_, index) => values[values.length - times.length + index] ?? null);
    charts[1].set([times, filled(found.lag || []), ...readers.map((name) => filled(found[name]))]);
  }
}

async function drawKeys() {
  if (!id) return;
  const wanted = id;
  const found = await (await fetch(`api/keys?id=${encodeURIComponent(wanted)}`)).json();
  if (wanted !== id) return;
  draw($("stream-keys"), ["key", "messages#", "share#", "bytes#"], found.keys.map(([key, count, octets]) => ({
    cells: [escaped(key), number(count), `${((100 * count) / found.messages).toFixed(1)} %`, size(octets)], classes: ["mono"] })), "no messages");
  $("stream-keys-note").textContent = found.messages ? `${number(found.distinct)} ${found.distinct === 1 ? "key" : "keys"} in the latest ${number(found.messages)} messages` : "";
}

// The tail

function body(one) {
  const rest = one.size > one.shown ? faint(` … ${size(one.size)}`) : "";
  if (/^\s*[[{]/.test(one.body) && one.size === one.shown) {
    try {
      const value = JSON.parse(one.body);
      const line = JSON.stringify(value, null, 1).replace(/\n\s*/g, " ");
      return [element("pre", { class: "json" }, escaped(line.length > LINE ? JSON.stringify(value, null, 2) : line))];
    } catch { /* it is text that begins like JSON */ }
  }
  return [...escaped(one.body), rest];
}

const cells = (one) => element("tr", { "data-key": one.sequence }, element("td", { class: "n" }, number(one.sequence)), element("td", { class: "mono" }, one.time.replace("T", " ").slice(0, 23)),
  element("td", { class: "mono" }, escaped(one.key)), element("td", { class: "mono wrap" }, body(one)));

// Messages are added at the end, and the oldest ones are removed: the others are not drawn again.
function drawTail() {
  const table = $("tail-table");
  if (!rows.length) return draw(table, ["sequence#", "time", "key", "body"], [], tail ? "waiting for messages" : "not following");
  const place = table.tBodies[0] || table.createTBody();
  const known = Number(place.lastElementChild?.dataset.key || 0);
  if (!known) place.replaceChildren();
  const atEnd = $("tail-scroll").scrollHeight - $("tail-scroll").scrollTop - $("tail-scroll").clientHeight < 80;
  place.append(...rows.filter((one) => one.sequence > known).map(cells));
  while (place.childElementCount > ROWS) place.firstElementChild.remove();
  if (atEnd || !known) $("tail-scroll").scrollTop = $("tail-scroll").scrollHeight;
}

export function follow(since) {
  tail?.close();
  [rows, latencies, skipped] = [[], [], 0];
  $("tail-note").textContent = "";
  if (/^\d+$/.test(since)) since = new Date(Date.now() - Number(since) * 1000).toISOString();
  const mine = tail = new EventSource(`api/tail?${new URLSearchParams({ id, pattern: $("tail-pattern").value, since })}`);
  let waiting = false;
  tail.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.error) {
      $("tail-note").textContent = message.error;
      mine.close();
      if (mine === tail) startOrStop();
      return;
    }
    rows.push(message);
    if (rows.length > ROWS) rows.shift();
    if (message.latency !== undefined) latencies.push(Math.max(0, message.latency));
    if (latencies.length > LATENCIES) latencies.shift();
    skipped += message.skipped || 0;
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      if (mine !== tail) return;
      drawTail();
      if (skipped) $("tail-note").textContent = `${number(skipped)} messages skipped: more come than a page can show`;
    });
  };
  $("tail-go").textContent = "Stop";
  drawTail();
}

export function startOrStop() {
  if (!tail) return follow($("tail-since").value);
  tail.close();
  tail = null;
  $("tail-go").textContent = "Follow";
}
