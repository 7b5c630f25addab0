"use strict";
// Lines over the last two minutes, as SVG. Colours are told apart with the usual weaknesses of sight.
const COLOURS = ["#2a7fc9", "#d0761b", "#3f9f68", "#b455a6", "#7f868e", "#c8402b", "#17a2b0", "#9a8a1a"];
const SPAN_SECONDS = 120;
const coloured = new Map(); // the key of a model, and the place of its colour

/** As long as a model is among those that are drawn it keeps its colour. */
function giveColours(keys) {
  for (const key of [...coloured.keys()]) if (!keys.includes(key)) coloured.delete(key);
  for (const key of keys) {
    if (coloured.has(key)) continue;
    const taken = new Set(coloured.values());
    coloured.set(key, COLOURS.findIndex((_, place) => !taken.has(place)));
  }
}

const colourOf = (key) => COLOURS[coloured.get(key)];

function svg(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** `lines` are [{colour, points: [[seconds ago, value or null]]}]; `format` writes a value. */
function drawChart(chart, lines, format) {
  const width = chart.clientWidth || 340, height = chart.clientHeight || 180, left = 58, bottom = 18, top = 8;
  const values = lines.flatMap((line) => line.points.map((point) => point[1])).filter((value) => value !== null);
  const most = niceAbove(Math.max(0, ...values));
  const x = (ago) => left + (width - left - 6) * (1 - ago / SPAN_SECONDS);
  const y = (value) => top + (height - top - bottom) * (1 - value / most);
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  for (let step = 0; step <= (values.length ? 4 : 0); step++) {
    const value = (most * step) / 4;
    chart.append(svg("line", { class: "grid", x1: left, x2: width - 6, y1: y(value), y2: y(value) }));
    chart.append(svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  for (const [ago, label] of [[120, "2 min ago"], [60, "1 min ago"], [0, "now"]]) {
    const anchor = ago === 120 ? "start" : ago ? "middle" : "end";
    chart.append(svg("text", { x: x(ago), y: height - 4, "text-anchor": anchor }, label));
  }
  if (!values.length) chart.append(svg("text", { x: (left + width) / 2, y: height / 2, "text-anchor": "middle" }, "no requests"));
  for (const line of lines) {
    for (const part of unbroken(line.points)) {
      const points = part.map(([ago, value]) => `${x(ago).toFixed(1)},${y(value).toFixed(1)}`);
      if (points.length === 1) points.push(points[0]); // round ends make a dot of it
      chart.append(svg("polyline", { points: points.join(" "), stroke: line.colour }));
    }
  }
}

/** Parts of a line between the moments at which there was nothing to measure. */
function unbroken(points) {
  const parts = [[]];
  for (const point of points) {
    if (point[1] === null) parts.push([]);
    else parts[parts.length - 1].push(point);
  }
  return parts.filter((part) => part.length);
}

function niceAbove(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 8, 10].map((each) => each * power).find((each) => each >= value) || 10 * power;
}

function formatSeconds(seconds) {
  if (seconds === null) return "";
  if (seconds === 0) return "0";
  if (seconds < 1e-3) return `${threeDigits(seconds * 1e6)} µs`;
  return seconds < 1 ? `${threeDigits(seconds * 1e3)} ms` : `${threeDigits(seconds)} s`;
}

function formatCount(value) {
  return value === 0 ? "0" : threeDigits(value);
}

function threeDigits(value) {
  if (value >= 99.95) return Math.round(value).toLocaleString("en");
  return value.toPrecision(3).replace(/\.?0+$/, "");
}
