// The mesh: the server in the middle, its peers around it. A large mesh shows its first nodes, and names on demand.

import { $, number, svg } from "./parts.js";

const NAMED = 40; // nodes that have their names beside them
let chosen = null; // the UUID of the selected node
let pointed = null; // the UUID of the node under the pointer

export const isChosen = (uuid) => uuid === chosen;

export function choose(uuid) {
  chosen = chosen === uuid ? null : uuid;
}

function placed(zre, graph) {
  const nodes = [{ uuid: zre.uuid, name: zre.name, hash: zre.hash, self: true, x: 0, y: 0 }];
  graph.order.forEach((uuid, index, shown) => {
    const ring = shown.length > 40 && index % 2 ? 0.72 : 1;
    const angle = (2 * Math.PI * index) / shown.length - Math.PI / 2;
    nodes.push({ uuid, ...graph.nodes[uuid], x: 420 * ring * Math.cos(angle), y: 250 * ring * Math.sin(angle) });
  });
  return nodes;
}

const label = (node) => svg("text", { x: node.x, y: node.y + (node.self ? 44 : node.y < -20 ? -22 : 32) }, node.name);

// Show the name of the node under the pointer. Nothing is replaced: the pointer is about to click it.
function point(node) {
  if (pointed === node.uuid) return;
  pointed = node.uuid;
  $("graph").querySelector(".pointed")?.remove();
  const made = label(node);
  made.classList.add("pointed");
  $("graph").append(made);
}

export function drawGraph(state, redraw) {
  const { zre, graph, table } = state;
  if (!zre || !graph) return $("graph").replaceChildren();
  const nodes = placed(zre, graph);
  const byHash = new Map();
  for (const node of nodes) byHash.set(node.hash, byHash.has(node.hash) ? null : node); // logs cannot tell two nodes with the same hash apart
  if (!nodes.some((node) => node.uuid === chosen)) chosen = null;
  const away = (...some) => (chosen && !some.some((node) => node.uuid === chosen) ? " away" : "");
  const line = (a, b, attributes) => svg("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, ...attributes, class: (attributes.class || "") + away(a, b) });
  const parts = nodes.slice(1).map((node) => line(nodes[0], node, {}));
  const talk = Object.entries(graph.talk).map(([pair, count]) => [...pair.split(" ").map(Number), count]);
  const most = Math.max(...talk.map(([, , count]) => count), 1);
  const crowd = chosen ? 1 : Math.max(0.25, Math.min(1, 80 / Math.max(talk.length, 1))); // the more lines, the thinner
  const near = new Set([chosen, pointed]); // nodes whose names are shown, also in a large mesh
  for (const [from, to, count] of talk) {
    const a = byHash.get(from), b = byHash.get(to);
    const share = count / most;
    if (!a || !b) continue;
    parts.push(line(a, b, { class: "talk", "stroke-width": 0.8 + 3 * share * crowd, "stroke-opacity": (0.08 + 0.6 * share * share) * crowd }));
    if (chosen && [a.uuid, b.uuid].includes(chosen)) near.add(a.uuid).add(b.uuid);
  }
  for (const node of nodes) {
    const circle = svg("circle", { cx: node.x, cy: node.y, r: node.self ? 22 : nodes.length > 60 ? 8 : 13,
      class: (node.self ? "self" : "") + (node.uuid === chosen ? " chosen" : "") });
    circle.append(svg("title", {}, node.name));
    circle.addEventListener("click", () => { choose(node.uuid); redraw(); });
    circle.addEventListener("pointerenter", () => point(node));
    parts.push(circle);
  }
  for (const node of nodes) { // after all circles: names are above them
    if (node.self || nodes.length <= NAMED || near.has(node.uuid)) parts.push(label(node));
  }
  const picked = nodes.find((node) => node.uuid === chosen);
  const heard = talk.filter(([from, to]) => picked && byHash.get(from) && byHash.get(to) && [from, to].includes(picked.hash));
  const others = new Set(heard.flatMap(([from, to]) => [from, to]).filter((one) => one !== picked.hash));
  const shown = `${number(graph.order.length)} of ${number(table.all)} shown`;
  const names = nodes.length > NAMED ? "point at a node to see its name, " : "";
  $("mesh-note").textContent = (picked
    ? `${picked.name}: ${number(heard.reduce((sum, [, , count]) => sum + count, 0))} recent messages, ${number(others.size)} ${others.size === 1 ? "peer" : "peers"}`
    : table.all ? `${names}select a node to see its messages` : "") + (table.all > graph.order.length ? `; ${shown}` : "");
  $("graph").replaceChildren(...parts);
}
