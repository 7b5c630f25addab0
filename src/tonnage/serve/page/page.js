"use strict";
// Asks the server once a second what it does, and shows it.
const PERIOD_MS = 1000;
const history = []; // [{at, models: {key: state}}], newest last
let colours = new Map();

const byId = (id) => document.getElementById(id);
const token = () => sessionStorage.getItem("token") || "";

async function ask(path, body) {
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  const answer = await fetch(path, body === undefined ? { headers } : { method: "POST", headers, body });
  const text = await answer.text();
  const document_ = text ? JSON.parse(text) : {};
  if (answer.status === 401 || answer.status === 403) byId("token-form").hidden = false;
  if (!answer.ok) throw new Error(document_.error || `the server answered ${answer.status}`);
  return document_;
}

const keyOf = (model) => `${model.name} ${model.version}`;

/** The value below which a share of what came in between two counts lies; null where nothing came. */
function quantile(bounds, before, after, share) {
  const counts = after.map((count, place) => count - (before ? before[place] : 0));
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  let passed = 0;
  for (let place = 0; place < counts.length; place++) {
    const low = place ? bounds[place - 1] : 0, high = bounds[Math.min(place, bounds.length - 1)];
    if (passed + counts[place] >= share * total) {
      return counts[place] ? low + (high - low) * ((share * total - passed) / counts[place]) : low;
    }
    passed += counts[place];
  }
  return bounds[bounds.length - 1];
}

/** What happened between two looks at a model. */
function between(before, after, bounds) {
  if (!before || before.since !== after.since) before = null;
  return {
    requests: after.requests - (before ? before.requests : 0),
    median: quantile(bounds, before && before.latencies, after.latencies, 0.5),
    p99: quantile(bounds, before && before.latencies, after.latencies, 0.99),
  };
}

function cell(row, text, kind = "") {
  const made = row.insertCell();
  made.className = kind;
  made.textContent = text;
  return made;
}

const tensorText = (tensors) => tensors.map((each) => `${each.name} ${each.datatype} [${each.shape.join(", ")}]`).join("; ");

function showModels(state) {
  const rows = document.createElement("tbody");
  const earlier = history.find((look) => look.at > performance.now() - 10 * PERIOD_MS) || history[0];
  for (const model of state.models) {
    const row = rows.insertRow();
    const seconds = Math.max((performance.now() - earlier.at) / 1000, 1e-3);
    cell(row, model.name);
    cell(row, model.version);
    cell(row, model.state === "READY" ? "ready" : `${model.state.toLowerCase()}${model.reason ? `: ${model.reason}` : ""}`, model.state === "READY" ? "good" : "bad");
    cell(row, tensorText(model.inputs || []));
    cell(row, tensorText(model.outputs || []));
    if (!model.latencies) continue;
    const recent = between(earlier.models[keyOf(model)], model, state.bounds);
    cell(row, model.instances, "number");
    cell(row, model.waiting, "number");
    cell(row, formatCount(history.length > 1 ? recent.requests / seconds : 0), "number");
    cell(row, formatSeconds(recent.median), "number");
    cell(row, formatSeconds(recent.p99), "number");
  }
  if (!state.models.length) cell(rows.insertRow(), "There are no models in the repository.", "muted").colSpan = 10;
  byId("models").replaceChildren(...rows.rows);
}

function showCharts(state) {
  const now = performance.now();
  const rates = [], latencies = [], legend = [];
  for (const key of colours.keys()) {
    const rate = [], latency = [];
    for (let place = 1; place < history.length; place++) {
      const before = history[place - 1], after = history[place];
      if (!after.models[key]) continue;
      const seconds = (after.at - before.at) / 1000, ago = (now - after.at) / 1000;
      const recent = between(before.models[key], after.models[key], state.bounds);
      rate.push([ago, recent.requests / seconds]);
      if (recent.p99 !== null) latency.push([ago, recent.p99]);
    }
    const colour = colours.get(key);
    rates.push({ colour, points: rate });
    latencies.push({ colour, points: latency });
    const item = document.createElement("li"), swatch = document.createElement("i");
    swatch.style.background = colour;
    item.append(swatch, key.replace(/ (\S*)$/, ", version $1"));
    legend.push(item);
  }
  drawChart(byId("throughput"), rates, formatCount);
  drawChart(byId("latency"), latencies, formatSeconds);
  byId("legend").replaceChildren(...legend);
}

async function look() {
  try {
    const state = await ask("page/state");
    const models = Object.fromEntries(state.models.filter((model) => model.latencies).map((model) => [keyOf(model), model]));
    for (const key of Object.keys(models)) if (!colours.has(key)) colours.set(key, colourOf(colours.size));
    history.push({ at: performance.now(), models });
    while (history.length > 1 && history[0].at < performance.now() - SPAN_SECONDS * 1000) history.shift();
    byId("version").textContent = state.version;
    byId("state").textContent = state.ready ? "ready" : "not ready";
    byId("state").className = state.ready ? "good" : "bad";
    showModels(state);
    showCharts(state);
    offerModels(state.models);
  } catch (error) {
    byId("state").textContent = `no answer: ${error.message}`;
    byId("state").className = "bad";
  }
  setTimeout(look, PERIOD_MS);
}

byId("rest").textContent = location.origin;
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  byId("token-form").hidden = true;
});
look();
