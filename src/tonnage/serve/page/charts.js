"use strict";
// Lines over the last two minutes, as SVG. Colours are told apart with the usual weaknesses of sight.
const COLOURS = ["#2a6cb0", "#ad6110", "#3f8f5b", "#a8459a", "#70767d", "#b5301c", "#5f9fd0", "#8a7a12"];
const SPAN_SECONDS = 120;

function colourOf(number) {
  return COLOURS[number % COLOURS.length];
}

function svg(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** `lines` are [{colour, points: [[seconds ago, value]]}]; `format` writes a value. */
function drawChart(chart, lines, format) {
  const width = chart.clientWidth || 340, height = chart.clientHeight || 180, left = 56, bottom = 18, top = 8;
  const values = lines.flatMap((line) => line.points.map((point) => point[1]));
  const most = niceAbove(Math.max(0, ...values));
  const x = (ago) => left + (width - left - 6) * (1 - ago / SPAN_SECONDS);
  const y = (value) => top + (height - top - bottom) * (1 - value / most);
  chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
  chart.replaceChildren();
  for (let step = 0; step <= 4; step++) {
    const value = (most * step) / 4;
    chart.append(svg("line", { class: "grid", x1: left, x2: width - 6, y1: y(value), y2: y(value) }));
    chart.append(svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  for (const [ago, label] of [[120, "2 min ago"], [60, "1 min ago"], [0, "now"]]) {
    const anchor = ago === 120 ? "start" : ago ? "middle" : "end";
    chart.append(svg("text", { x: x(ago), y: height - 4, "text-anchor": anchor }, label));
  }
  for (const line of lines) {
    const points = line.points.map(([ago, value]) => `${x(ago).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    chart.append(svg("polyline", { points, stroke: line.colour }));
  }
}

function niceAbove(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= value);
}

function formatSeconds(seconds) {
  if (seconds === null) return "";
  if (seconds < 1e-3) return `${(seconds * 1e6).toFixed(0)} us`;
  return seconds < 1 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${seconds.toPrecision(3)} s`;
}

function formatCount(value) {
  return value >= 100 || value === 0 ? value.toFixed(0) : value.toPrecision(3);
}
