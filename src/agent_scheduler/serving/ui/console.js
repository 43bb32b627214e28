"use strict";
// The page shows only the stream of /ui/stream: first `whole`, then `news` each second. The stream has the values of
// counters and buckets; rates and percentiles are computed here from their increase.

const byId = (id) => document.getElementById(id);
const KEPT = 600;  // seconds of history
const WINDOW = 10; // seconds for percentiles and ratios
const WAITING = ["active", "backoff", "unschedulable", "gated", "batch"];
const RESULTS = ["scheduled", "unschedulable", "error"];
const PERCENTILES = new Map([["p50", .5], ["p95", .95], ["p99", .99]]);
const ofPlace = (place) => `pods ${place}`;

// ---- numbers and elements

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

function bytes(amount) {
  let unit = 0;
  while (amount >= 1024 && unit < UNITS.length - 1) { amount /= 1024; unit += 1; }
  return number.format(amount) + UNITS[unit];
}

// cpu in millicores, memory and storage in bytes, pods in pods, others in thousandths, as in the quota book.
function quantity(resource, amount) {
  if (resource === "memory") return bytes(amount);
  if (resource === "pods") return number.format(amount);
  if (resource === "ephemeral-storage" || resource.startsWith("hugepages-")) return bytes(amount / 1000);
  return number.format(amount / 1000);
}

const counted = (count, noun) => `${number.format(count)} ${noun}${count === 1 ? "" : "s"}`;
const duration = (milliseconds) =>
  (milliseconds < 1000 ? `${number.format(milliseconds)} ms` : `${number.format(milliseconds / 1000)} s`);

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// ---- figures over time

const history = [];  // {time, attempts, conflicts, counts, pending}, oldest first
let bounds = [];
const plots = [];

function percentile(from, to, share) {
  const total = to[to.length - 1] - from[from.length - 1];
  if (total <= 0) return null;
  let below = 0;
  for (let index = 0; index < to.length; index += 1) {
    const upTo = to[index] - from[index];
    if (upTo >= share * total) {
      // As in Prometheus: linear within a bucket, and the last bound for values above it.
      if (index >= bounds.length) return bounds[bounds.length - 1];
      const low = index ? bounds[index - 1] : 0;
      return low + (bounds[index] - low) * (share * total - below) / (upTo - below);
    }
    below = upTo;
  }
  return null;
}

function before(index, seconds) {
  let found = index;
  while (found > 0 && history[index].time - history[found].time < seconds) found -= 1;
  return history[found];
}

function note(data) {
  bounds = data.latency.bounds;
  const last = history[history.length - 1];
  if (last && data.attempts.scheduled < last.attempts.scheduled) history.length = 0;  // the process has changed
  history.push({ time: data.time, attempts: data.attempts, conflicts: data.conflicts, counts: data.latency.counts,
                 pending: data.pending });
  while (history[0].time < data.time - KEPT) history.shift();
}

function series() {
  const rows = { time: [], conflicts: [] };
  for (const name of [...RESULTS, ...PERCENTILES.keys(), ...WAITING.map(ofPlace)]) rows[name] = [];
  for (let index = 1; index < history.length; index += 1) {
    const now = history[index], was = history[index - 1], seconds = now.time - was.time;
    if (seconds <= 0) continue;
    rows.time.push(now.time);
    for (const result of RESULTS) {
      rows[result].push((now.attempts[result] - was.attempts[result]) / seconds);
    }
    rows.conflicts.push((now.conflicts - was.conflicts) / seconds);
    const since = before(index, WINDOW);
    for (const [name, share] of PERCENTILES) {
      const found = percentile(since.counts, now.counts, share);
      rows[name].push(found === null ? null : found * 1000);
    }
    for (const place of WAITING) rows[ofPlace(place)].push(now.pending[place]);
  }
  return rows;
}

const HUES = ["#0969da", "#bf3989", "#bc4c00", "#1a7f37", "#8250df"];
const DARK_HUES = ["#58a6ff", "#f778ba", "#ffa657", "#56d364", "#bc8cff"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const hue = (index) => (dark.matches ? DARK_HUES : HUES)[index];

// The least round number that is not below `high`, so that the highest tick has a label.
function ceiling(high) {
  const unit = 10 ** Math.floor(Math.log10(high));
  return unit * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= high);
}

function plot(id, names, label = (name) => name) {
  const axis = { stroke: () => colour("soft"), grid: { stroke: () => colour("line"), width: 1 },
                 ticks: { stroke: () => colour("line") } };
  const place = byId(id);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `${place.previousElementSibling.textContent}, over time`);
  const made = new uPlot({
    width: place.clientWidth || 400,
    height: 170,
    cursor: { sync: { key: "figures" } },
    axes: [{ ...axis, values: (_plot, times) => times.map((time) => clock.format(time * 1000)), space: 80 }, { ...axis, size: 56 }],
    // From the first second on, the axis has the time of at least a minute up to now.
    scales: {
      x: { range: (_plot, low, high) => (high === null ? [Date.now() / 1000 - 60, Date.now() / 1000] : [Math.min(low, high - 60), high]) },
      y: { range: (_plot, _low, high) => [0, high > 0 ? ceiling(high) : 1] },
    },
    legend: { markers: { dash: () => "solid" } },
    series: [{ label: "Time", value: (_plot, value) => (value === null ? "–" : clock.format(value * 1000)) }, ...names.map((name, index) => ({
      label: label(name),
      width: 1.5,
      points: { show: false },
      // Gaps grow from line to line, so that equal lines do not hide one another.
      dash: index ? [6, 3 * index] : undefined,
      stroke: () => hue(index),
      value: (_plot, value) => (value === null ? "–" : number.format(value)),
    }))],
  }, [[], ...names.map(() => [])], place);
  plots.push({ made, place, names });
}

function draw() {
  const rows = series(), last = rows.time.length - 1;
  for (const { made, names } of plots) {
    made.setData([rows.time, ...names.map((name) => rows[name])]);
    // Without a pointer in a plot, the legend has the last values.
    if (last >= 0 && (made.cursor.idx === null || made.cursor.idx === undefined)) made.setLegend({ idx: last }, false);
  }
  if (last < 0) return;
  const now = history[history.length - 1], since = before(history.length - 1, WINDOW);
  const bound = now.attempts.scheduled - since.attempts.scheduled;
  byId("tile-rate").textContent = number.format(rows.scheduled[last]);
  byId("tile-p99").textContent = rows.p99[last] === null ? "–" : duration(rows.p99[last]);
  byId("tile-conflicts").textContent = bound > 0 ? number.format((now.conflicts - since.conflicts) / bound) : "–";
}

// ---- the map of nodes

const nodes = new Map();  // row -> {name, cpu, memory, gpu, cordoned, used: {cpu, memory, gpu}, pods}
let order = [];           // rows sorted by name
let shardOf = new Map();  // node name -> shard name
let shardNames = [];
let chosen = -1;          // an index of `order`
let by = "cpu";
let columns = 1, cell = 8, wide = 8;  // cells are as high as `cell` and at least as wide
const map = byId("map");

function setNodes(data, all) {
  if (all) nodes.clear();
  for (const row of data.gone) nodes.delete(row);
  for (const [row, name, cpu, memory, gpu, cordoned] of data.spec) {
    nodes.set(row, { name, cpu, memory, gpu, cordoned, used: { cpu: 0, memory: 0, gpu: 0 }, pods: 0 });
  }
  for (const [row, cpu, memory, gpu, pods] of data.use) {
    const node = nodes.get(row);
    if (node) { node.used = { cpu, memory, gpu }; node.pods = pods; }
  }
  if (all || data.gone.length || data.spec.length) {
    order = [...nodes.keys()].sort((one, other) => (nodes.get(one).name < nodes.get(other).name ? -1 : 1));
    chosen = Math.min(chosen, order.length - 1);
    byId("tile-nodes").textContent = number.format(order.length);
    const hasGpu = order.some((row) => nodes.get(row).gpu > 0);
    document.querySelector("input[value=gpu]").disabled = !hasGpu;
    return true;
  }
  return false;
}

function mixed(low, high, share) {
  const parse = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const one = parse(low), other = parse(high);
  return `rgb(${one.map((value, index) => Math.round(value + (other[index] - value) * share)).join(",")})`;
}

let shades = [];

function prepareShades() {
  const low = colour("low"), high = colour("high");
  shades = Array.from({ length: 33 }, (_unused, step) => mixed(low, high, step / 32));
}

function shardHue(name) {
  const index = shardNames.indexOf(name);
  // From 40 to 320 degrees: red marks unschedulable nodes.
  const hue = 40 + (170 + index * 107) % 280;
  return index < 0 ? colour("line") : `hsl(${hue} 60% ${dark.matches ? 60 : 45}%)`;
}

function layOut() {
  const width = map.parentElement.clientWidth;
  cell = Math.max(6, Math.min(36, Math.floor(Math.sqrt(width * 320 / Math.max(order.length, 1)))));
  columns = Math.max(1, Math.min(order.length, Math.floor(width / cell)));
  wide = Math.max(cell, Math.floor(width / columns));
  const height = Math.max(1, Math.ceil(order.length / columns)) * cell, scale = devicePixelRatio || 1;
  map.width = width * scale;
  map.height = height * scale;
  map.style.height = `${height}px`;
  map.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}

function paint() {
  const began = performance.now(), pen = map.getContext("2d");
  const hues = by === "shard" ? new Map(shardNames.map((name) => [name, shardHue(name)])) : null;
  const nothing = colour("line"), bad = colour("bad");
  pen.clearRect(0, 0, map.width, map.height);
  for (let place = 0; place < order.length; place += 1) {
    const node = nodes.get(order[place]), x = (place % columns) * wide, y = Math.floor(place / columns) * cell;
    if (hues) pen.fillStyle = hues.get(shardOf.get(node.name)) || nothing;
    else if (!node[by]) pen.fillStyle = nothing;
    else pen.fillStyle = shades[Math.max(0, Math.min(32, Math.round(32 * node.used[by] / node[by])))];
    pen.fillRect(x, y, wide - 1, cell - 1);
    if (node.cordoned) { pen.fillStyle = bad; pen.fillRect(x, y, wide - 1, 2); }
  }
  if (chosen >= 0) {
    pen.strokeStyle = colour("text");
    pen.lineWidth = 2;
    pen.strokeRect((chosen % columns) * wide, Math.floor(chosen / columns) * cell, wide - 1, cell - 1);
  }
  document.documentElement.dataset.paintMs = (performance.now() - began).toFixed(1);
}

function tellLegend() {
  const legend = byId("legend");
  legend.replaceChildren();
  const part = (hue, text) => {
    const square = element("i"), both = element("span");
    square.style.background = hue;
    both.append(square, text);
    legend.append(both, " ");
  };
  if (by === "shard") for (const name of shardNames) part(shardHue(name), name);
  else for (const step of [0, 16, 32]) part(shades[step], `${step / 32 * 100} %`);
  part(colour("bad"), "top edge: unschedulable");
}

function tellNode() {
  if (chosen < 0) return;
  const node = nodes.get(order[chosen]), used = node.used;
  const parts = [`${number.format(used.cpu / 1000)} of ${number.format(node.cpu / 1000)} CPU`,
                 `${bytes(used.memory)} of ${bytes(node.memory)} memory`];
  if (node.gpu) parts.push(`${number.format(used.gpu)} of ${number.format(node.gpu)} GPU`);
  parts.push(`${node.pods} pods`);
  if (shardOf.has(node.name)) parts.push(`shard ${shardOf.get(node.name)}`);
  if (node.cordoned) parts.push("unschedulable");
  byId("node").textContent = `${node.name}: ${parts.join(", ")}`;
}

function choose(place) {
  if (place < 0 || place >= order.length || place === chosen) return;
  chosen = place;
  paint();
  tellNode();
}

map.addEventListener("pointermove", (event) => {
  const box = map.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / wide);
  if (column < columns) choose(Math.floor((event.clientY - box.top) / cell) * columns + column);
});
map.addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
  if (step === undefined && event.key !== "Home" && event.key !== "End") return;
  event.preventDefault();
  if (event.key === "Home") choose(0);
  else if (event.key === "End") choose(order.length - 1);
  else choose(chosen < 0 ? 0 : chosen + step);
});
for (const each of document.querySelectorAll("input[name=colour]")) {
  each.addEventListener("change", () => { by = each.value; tellLegend(); paint(); });
}

// ---- tables

// On narrow screens, which have no room for the head of the table, each cell has its own label.
function fill(id, rows) {
  const body = byId(id), labels = [...body.parentElement.querySelectorAll("th")].map((each) => each.textContent);
  for (const row of rows) [...row.children].forEach((each, index) => { each.dataset.label = labels[index]; });
  body.replaceChildren(...rows);
}

function show(section, wanted) {
  for (const each of document.querySelectorAll(`[data-section=${section}]`)) each.hidden = !wanted;
}

function amounts(resources) {
  return Object.entries(resources || {}).map(([name, amount]) => `${name} ${quantity(name, amount)}`).join(", ") || "–";
}

function age(seconds) {
  if (!(seconds >= 0)) return "–";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

function tellPending(page, filtered) {
  const shown = page.items.length, count = page.truncated ? `The ${shown} oldest pods are displayed` : counted(shown, "pod");
  byId("pending-count").textContent = filtered ? `${count}, of those that the filter selects.` : `${count}.`;
  fill("pending-rows", page.items.map((pod) => {
    const row = element("tr"), name = element("td", undefined, { class: "long" });
    const button = element("button", pod.pod, { type: "button", title: "Explain this pod" });
    button.addEventListener("click", () => { byId("asked").value = pod.pod; byId("ask").requestSubmit(); byId("why").scrollIntoView(); });
    name.append(button);
    row.append(name, element("td", age((Date.parse(page.time) - Date.parse(pod.created)) / 1000)), element("td", pod.place.replace("_", " ")),
               element("td", pod.queue || "–"), element("td", String(pod.priority)),
               element("td", pod.message || pod.reason || "–", { class: "why" }));
    return row;
  }));
}

function tellQueues(queues) {
  show("queues", queues.length > 0);
  const names = new Set(queues.map((queue) => queue.name)), below = new Map();
  for (const queue of queues) {
    const parent = names.has(queue.parent) && queue.parent !== queue.name ? queue.parent : "";
    below.set(parent, [...(below.get(parent) || []), queue]);
  }
  const rows = [], seen = new Set();
  const add = (queue, depth) => {
    if (seen.has(queue.name)) return;
    seen.add(queue.name);
    const row = element("tr");
    row.append(element("td", "   ".repeat(depth) + queue.name, { class: "name" }), element("td", queue.state || "–"));
    const cellOf = element("td", undefined, { class: "amounts" });
    const resources = new Set([...Object.keys(queue.capability || {}), ...Object.keys(queue.allocated)]);
    for (const name of resources) {
      const used = queue.allocated[name] || 0, most = (queue.capability || {})[name], part = element("span", undefined, { class: "amount" });
      const text = `${name} ${quantity(name, used)}` + (most ? ` of ${quantity(name, most)}` : "");
      if (most) part.append(element("progress", undefined, { max: 1, value: Math.min(1, used / most), "aria-label": text }), " ");
      part.append(text);
      cellOf.append(part);
    }
    if (!resources.size) cellOf.textContent = "–";
    row.append(cellOf, element("td", amounts(queue.deserved)), element("td", amounts(queue.reserved)));
    rows.push(row);
    for (const child of below.get(queue.name) || []) add(child, depth + 1);
  };
  for (const queue of below.get("") || []) add(queue, 0);
  for (const queue of queues) add(queue, 0);  // queues in a cycle
  fill("queue-rows", rows);
}

function tellGangs(gangs) {
  const total = Object.values(gangs.phases).reduce((sum, count) => sum + count, 0);
  show("gangs", total > 0);
  const counts = Object.entries(gangs.phases).map(([phase, count]) => `${count} ${phase}`).join(", ");
  byId("gang-counts").textContent = gangs.shown.length < total
    ? `${counts}. The first ${gangs.shown.length} of ${total} are displayed, waiting ones first.` : counts;
  fill("gang-rows", gangs.shown.map((gang) => {
    const row = element("tr");
    row.append(element("td", gang.name, { class: "long" }), element("td", gang.owner || "–"), element("td", gang.queue || "–"),
               element("td", gang.phase),
               element("td", `${gang.has} of ${gang.members}, ${gang.needs} needed`));
    const tasks = element("td", undefined, { class: "tasks" });
    for (const [name, has, there, needs, waits] of gang.roles) {
      const text = waits && !there ? `${name}: waiting for other tasks` : `${name}: ${has} of ${there}, ${needs} needed`;
      tasks.append(element("span", text, { class: waits ? "task waits" : "task" }));
    }
    row.append(tasks, element("td", gang.why || "–", { class: "why" }));
    return row;
  }));
}

function tellShards(shards) {
  show("shards", shards.length > 0);
  fill("shard-rows", shards.map((shard) => {
    const row = element("tr");
    for (const key of ["name", "desired", "inUse", "toAdd", "toRemove", "updated"]) row.append(element("td", String(shard[key])));
    return row;
  }));
}

// ---- updates

function take(data, all) {
  if (data.about) {
    byId("about").textContent = `${data.about.version}, ${data.about.identity}: ${data.about.schedulers.join(", ")}, ${counted(data.about.workers, "worker")}`;
  }
  note(data);
  if (data.shardOf) {
    shardNames = Object.keys(data.shardOf);
    shardOf = new Map(shardNames.flatMap((name) => data.shardOf[name].map((node) => [node, name])));
  }
  if (setNodes(data.nodes, all)) layOut();
  if (data.shardOf || all) tellLegend();
  if (data.queues) tellQueues(data.queues);
  if (data.gangs) tellGangs(data.gangs);
  if (data.shards) tellShards(data.shards);
  byId("tile-waiting").textContent = number.format(WAITING.reduce((sum, place) => sum + data.pending[place], 0));
  byId("tile-placed").textContent = number.format(data.placed);
  lookAtPending(false);
  tell(!data.synced ? "not synced yet" : data.leading ? "leader" : "standby", !data.synced);
  draw();
  paint();
  tellNode();
}

function tell(text, bad) {
  const state = byId("state");
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("bad", bad);
}

// ---- the stream

let token = "";

function headers() {
  // Not `Authorization`, which an API server's proxy does not forward.
  return token ? { "X-Agent-Scheduler-Token": token } : {};
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const fields = Object.fromEntries(rest.slice(0, end).split("\n").map((line) => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }));
      rest = rest.slice(end + 2);
      yield fields;
    }
  }
}

async function follow() {
  const response = await fetch("stream", { headers: headers(), cache: "no-store" });
  if (response.status === 401 || response.status === 403) {
    await askForToken((await response.text()).trim());
    return;
  }
  if (!response.ok) throw new Error((await response.text()).trim() || String(response.status));
  for await (const { event, data } of events(response)) {
    if (event === "whole") take(JSON.parse(data), true);
    else if (event === "news") take(JSON.parse(data), false);
  }
}

function askForToken(problem) {
  const form = byId("token");
  form.hidden = false;
  byId("token-problem").textContent = token ? problem : "";
  byId("token-text").focus();
  tell("waiting for a token", true);
  return new Promise((resolve) => form.addEventListener("submit", (event) => {
    event.preventDefault();
    token = byId("token-text").value.trim();
    byId("token-text").value = "";
    form.hidden = true;
    resolve();
  }, { once: true }));
}

async function run() {
  for (let failures = 0; ;) {
    try {
      await follow();
      failures = 0;
    } catch (error) {
      failures += 1;
      tell(`connection lost: ${error.message}`, true);
    }
    // After a regular end the stream is opened again immediately.
    await new Promise((resolve) => setTimeout(resolve, failures ? Math.min(10000, 500 * 2 ** failures) : 200));
  }
}

// ---- pending pods

const EVERY = 5000;  // milliseconds between two requests; each examines all waiting pods
let filter = new URLSearchParams({ limit: "50" });
let asks = false, next = 0;

async function lookAtPending(now) {
  if (asks || document.hidden || (!now && performance.now() < next)) return;
  asks = true;
  try {
    const response = await fetch(`../debug/pending?${filter}`, { headers: headers(), cache: "no-store" });
    if (response.ok) tellPending(await response.json(), filter.has("namespace") || filter.has("queue"));
    else byId("pending-count").textContent = (await response.text()).trim();
  } catch (error) {
    byId("pending-count").textContent = `connection lost: ${error.message}`;
  } finally {
    asks = false;
    next = performance.now() + EVERY;
  }
}

byId("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  filter = new URLSearchParams({ limit: "50" });
  for (const name of ["namespace", "queue"]) {
    const given = byId(`filter-${name}`).value.trim();
    if (given) filter.set(name, given);
  }
  next = 0;  // a request that is under way has the filter from before
  lookAtPending(true);
});

byId("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = byId("answer"), asked = byId("asked").value.trim(), group = asked.startsWith("podgroup/");
  const query = group ? `podgroup=${encodeURIComponent(asked.slice("podgroup/".length))}` : `pod=${encodeURIComponent(asked)}`;
  answer.hidden = false;
  answer.textContent = "…";
  try {
    const response = await fetch(`../debug/explain?${query}&output=text`, { headers: headers(), cache: "no-store" });
    answer.textContent = await response.text();
  } catch (error) {
    answer.textContent = `connection lost: ${error.message}`;
  }
});

// ---- start

function start() {
  prepareShades();
  plot("plot-rate", RESULTS);
  plot("plot-latency", [...PERCENTILES.keys()]);
  plot("plot-depth", WAITING.map(ofPlace), (name) => name.slice(ofPlace("").length));
  plot("plot-conflicts", ["conflicts"]);
  layOut();
  new ResizeObserver(() => {
    for (const { made, place } of plots) made.setSize({ width: place.clientWidth, height: 170 });
    layOut();
    paint();
  }).observe(document.querySelector("main"));
  dark.addEventListener("change", () => {
    prepareShades();
    tellLegend();
    for (const { made, place } of plots) {
      made.redraw();
      // The first row of the legend is the time, which has no marker.
      [...place.querySelectorAll(".u-series")].slice(1).forEach((row, index) => {
        row.querySelector(".u-marker").style.borderColor = hue(index);
      });
    }
    paint();
  });
  run();
}

start();
