// Orders to the server: a dialog for each. The server checks the token and the rules; the page only asks.

import { $, element, escaped } from "./parts.js";

const FIELDS = {
  publish: [["key", "Key", "input"], ["body", "Body", "textarea"]],
  create: [["name", "Name", "input"], ["sync", "Sync", ["", "always", "interval", "never"]], ["keep_seconds", "Keep for (7d, 12h, 90s; empty: for ever)", "input"], ["keep_bytes", "Keep at most (10G, 512M; empty: all)", "input"], ["compact", "Keep the last message of each key", "checkbox"]],
  edit: [["sync", "Sync", ["always", "interval", "never"]], ["keep_seconds", "Keep for (7d, 12h, 90s; empty: for ever)", "input"], ["keep_bytes", "Keep at most (10G, 512M; empty: all)", "input"], ["compact", "Keep the last message of each key", "checkbox"]],
  trim: [["before", "Remove the messages before sequence", "number"]],
  delete: [["confirm", "Type the name of the stream", "input"]],
};
const UNITS = { keep_seconds: { d: 86400, h: 3600, m: 60, s: 1 }, keep_bytes: { T: 2 ** 40, G: 2 ** 30, M: 2 ** 20, K: 2 ** 10 } };
const SETTINGS = ["sync", "keep_seconds", "keep_bytes", "compact"];
const TITLES = { publish: "Publish a message", create: "Create a stream", edit: "Edit the settings", trim: "Trim the stream", delete: "Delete the stream" };

function field([name, label, kind], value) {
  let input;
  if (Array.isArray(kind)) input = element("select", { name }, kind.map((one) => element("option", { value: one, selected: one === value ? "" : null }, one || "the default")));
  else if (kind === "textarea") input = element("textarea", { name, rows: 6 });
  else input = element("input", { name, type: kind === "input" ? "text" : kind, checked: kind === "checkbox" && value ? "" : null, min: kind === "number" ? 0 : null, value: kind === "checkbox" || value === undefined || value === null ? null : value });
  return element("label", {}, label, input);
}

// A setting as people write it: 604800 seconds are 7d. The server reads it.
function written(name, value) {
  if (!UNITS[name] || value === undefined || value === null) return value;
  const unit = Object.entries(UNITS[name]).find(([, one]) => value && value % one === 0);
  return unit ? `${value / unit[1]}${unit[0]}` : `${value}`;
}

// The content of an order, from the fields of its dialog; `before` has the settings that are not sent again.
function content(order, form, stream) {
  const value = (name) => form.elements[name].value;
  const amount = (name) => (value(name) === "" ? null : Number(value(name)));
  if (order === "publish") return { key: value("key"), body: value("body") };
  if (order === "trim") return { before: amount("before") };
  if (order === "delete") return {};
  const given = { sync: value("sync") || null, keep_seconds: value("keep_seconds").trim() || null, keep_bytes: value("keep_bytes").trim() || null, compact: form.elements.compact.checked };
  const changed = SETTINGS.filter((name) => (order === "create" ? given[name] : given[name] !== (written(name, stream[name]) ?? null)));
  return { ...(order === "create" ? { stream: value("name") } : {}), settings: Object.fromEntries(changed.map((name) => [name, given[name]])) };
}

export function openOrder(order, stream, done) {
  const note = element("p", { role: "alert", class: "problem" });
  const form = element("form", {}, element("h2", {}, TITLES[order]), stream ? element("p", { class: "mono wrap" }, escaped(stream.stream)) : null,
    FIELDS[order].map((one) => field(one, written(one[0], stream?.[one[0]]))), note,
    element("div", { class: "bar" }, element("button", { type: "submit", class: order === "delete" || order === "trim" ? "danger" : "main" }, TITLES[order]), element("button", { type: "button", onclick: () => $("order").close() }, "Cancel")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (order === "delete" && form.elements.confirm.value !== stream.stream) {
      note.textContent = "this is not the name of the stream";
      return;
    }
    const body = JSON.stringify({ order, ...(stream ? { id: stream.id } : {}), ...content(order, form, stream) });
    try {
      const answer = await fetch("api/order", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      if (!answer.ok) throw new Error(await answer.text());
    } catch (error) {
      note.textContent = error.message;
      return;
    }
    if (order === "publish") {
      note.textContent = "";
      form.elements.body.value = "";
      form.elements.body.focus();
    } else $("order").close();
    done?.();
  });
  $("order").replaceChildren(form);
  $("order").showModal();
}
