"use strict";
// Asks the server once a second what it does, and shows it.
const PERIOD_MS = 1000;
const RECENT_SECONDS = 10;
const looks = []; // [{at, models: {key: state}}] by the server's clock, newest last
let timer;

/** The value below which a share of what came in between two counts lies; null where nothing came. */
function quantile(bounds, before, after, share) {
  const counts = after.map((count, place) => count - (before ? before[place] : 0));
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  let passed = 0;
  for (let place = 0; place < counts.length; place++) {
    const low = place ? bounds[place - 1] : 0, high = bounds[Math.min(place, bounds.length - 1)];
    if (counts[place] && passed + counts[place] >= share * total) {
      return low + (high - low) * ((share * total - passed) / counts[place]);
    }
    passed += counts[place];
  }
  return bounds[bounds.length - 1];
}

/** What happened between two looks at a model. Who was not there before was loaded since. */
function between(before, after, bounds) {
  if (before && before.load !== after.load) before = null;
  return {
    requests: after.requests - (before ? before.requests : 0),
    median: quantile(bounds, before && before.latencies, after.latencies, 0.5),
    p99: quantile(bounds, before && before.latencies, after.latencies, 0.99),
  };
}

function tensorLines(tensors) {
  const told = (each) => make("span", { className: "kind", textContent: `${each.datatype} [${each.shape.join(", ")}]` });
  return make("div", {}, ...tensors.map((each) => make("div", {}, make("code", { textContent: each.name }), " ", told(each))));
}

function modelName(model) {
  return make("div", {}, model.name, make("small", { textContent: model.version ? ` version ${model.version}` : "" }));
}

function modelRow(model, bounds, first, latest) {
  const row = document.createElement("tr");
  cell(row, "model", modelName(model), "name");
  if (!model.latencies) {
    const reason = model.reason ? `: ${model.reason}` : "";
    const told = cell(row, "state", model.state ? `${model.state.toLowerCase()}${reason}` : "not loaded", model.state ? "bad" : "muted");
    told.colSpan = 10;
    return row;
  }
  const recent = between(first.models[keyOf(model)], model, bounds), seconds = latest.at - first.at;
  const state = cell(row, "state", make("div", { textContent: model.state.toLowerCase() }), model.state === "READY" ? "good" : "bad");
  if (model.reason) state.append(make("small", { className: "bad", textContent: model.reason }));
  cell(row, "inputs", tensorLines(model.inputs));
  cell(row, "outputs", tensorLines(model.outputs));
  cell(row, "instances", model.instances, model.instances ? "number" : "number bad");
  cell(row, "waiting", model.waiting, "number");
  cell(row, "answered", model.requests.toLocaleString("en"), "number");
  cell(row, "failed", model.failed.toLocaleString("en"), model.failed ? "number bad" : "number");
  cell(row, "requests/s", seconds > 0 ? formatCount(recent.requests / seconds) : "", "number");
  cell(row, "median", seconds > 0 ? formatSeconds(recent.median) : "", "number");
  cell(row, "p99", seconds > 0 ? formatSeconds(recent.p99) : "", "number");
  return row;
}

function showModels(state) {
  const latest = looks[looks.length - 1];
  const first = looks.find((look) => look.at >= latest.at - RECENT_SECONDS - 0.5);
  const rows = state.models.map((model) => modelRow(model, state.bounds, first, latest));
  if (!rows.length) {
    const row = document.createElement("tr");
    cell(row, "", "There are no models in the repository.", "muted").colSpan = 11;
    rows.push(row);
  }
  byId("models").replaceChildren(...rows);
}

/** One model over all looks: what came between each two of them. */
function line(key, bounds) {
  const now = looks[looks.length - 1].at, rates = [], latencies = [];
  let requests = 0, model;
  for (let place = 1; place < looks.length; place++) {
    const before = looks[place - 1], after = looks[place], ago = now - after.at;
    if (!after.models[key]) {
      rates.push([ago, null]);
      latencies.push([ago, null]);
      continue;
    }
    model = after.models[key];
    const recent = between(before.models[key], model, bounds);
    rates.push([ago, recent.requests / (after.at - before.at)]);
    latencies.push([ago, recent.p99]);
    requests += recent.requests;
  }
  return { key, model, requests, rates, latencies };
}

/** The busiest models, as many as there are colours. */
function busiest(bounds) {
  const keys = new Set(looks.flatMap((look) => Object.keys(look.models)));
  const lines = [...keys].map((key) => line(key, bounds)).filter((each) => each.requests);
  const chosen = lines.sort((one, other) => other.requests - one.requests).slice(0, COLOURS.length);
  return [chosen.sort((one, other) => (one.key < other.key ? -1 : 1)), lines.length - chosen.length];
}

function showCharts(state) {
  const [lines, others] = busiest(state.bounds);
  giveColours(lines.map((each) => each.key));
  drawChart(byId("throughput"), lines.map((each) => ({ colour: colourOf(each.key), points: each.rates })), formatCount);
  drawChart(byId("latency"), lines.map((each) => ({ colour: colourOf(each.key), points: each.latencies })), formatSeconds);
  const legend = lines.map((each) => {
    const swatch = make("i");
    swatch.style.background = colourOf(each.key);
    return make("li", {}, swatch, titleOf(each.model));
  });
  if (others) legend.push(make("li", { className: "muted", textContent: `and ${others} with fewer requests` }));
  byId("legend").replaceChildren(...legend);
}

function showState(state) {
  const failed = state.models.filter((model) => model.state && model.state !== "READY").length;
  const why = failed ? `: ${failed} of ${state.models.length} models cannot be used` : "";
  byId("version").textContent = state.version;
  byId("state").textContent = state.ready ? "ready" : `not ready${why}`;
  byId("state").className = state.ready ? "good" : "bad";
}

function remember(state) {
  const models = Object.fromEntries(state.models.filter((model) => model.latencies).map((model) => [keyOf(model), model]));
  if (looks.length && looks[looks.length - 1].at >= state.at) looks.length = 0; // another server answers here now
  looks.push({ at: state.at, models });
  while (looks[0].at < state.at - SPAN_SECONDS) looks.shift();
}

async function look() {
  clearTimeout(timer);
  try {
    const state = await (await ask("page/state")).json();
    remember(state);
    showState(state);
    showModels(state);
    showCharts(state);
    offerModels(state.models);
  } catch (error) {
    byId("state").textContent = error instanceof Refused ? "a token is needed" : `no answer: ${error.message}`;
    byId("state").className = "bad";
    if (error instanceof Refused) return; // until there is another token
  }
  timer = setTimeout(look, PERIOD_MS);
}

byId("rest").textContent = location.origin;
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value);
  byId("token-form").hidden = true;
  look();
});
look();
