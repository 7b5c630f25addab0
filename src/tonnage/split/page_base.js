// What all parts of the page use: its data, elements, and numbers as people read them.
"use strict";
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const data = JSON.parse(one("#data").textContent);
const painters = []; // functions that draw a view

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value; else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const threeDigits = (value) => String(Number(value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)));

function duration(seconds) {
  if (seconds < 1e-3) return `${threeDigits(seconds * 1e6)} µs`;
  if (seconds < 1) return `${threeDigits(seconds * 1e3)} ms`;
  return seconds < 120 ? `${threeDigits(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

function formatBytes(count, most = 2) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(count) >= 1000 && unit < 4) { count /= 1024; unit += 1; }
  const digits = unit === 0 ? 0 : count < 10 ? most : count < 100 ? most - 1 : 0;
  return `${count.toFixed(digits)} ${units[unit]}`;
}

function formatJoules(joules) {
  const [size, unit] = joules < 999.5 ? [1, "J"] : joules < 999500 ? [1e3, "kJ"] : [1e6, "MJ"];
  return `${threeDigits(joules / size)} ${unit}`;
}

const percent = (share) => `${100 * share >= 10 || !share ? Math.round(100 * share) : Number((100 * share).toPrecision(2))} %`;
const many = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : what.endsWith("ch") ? "es" : "s"}`;

// Colours repeat after twelve devices; numbers do not.
const hue = (device) => `d${device % 12}`;
const tag = (device) => element("span", { className: `tag ${hue(device)}` }, String(device + 1));
const named = (device) => element("span", { className: "named" }, tag(device), " ", element("span", { className: "name" }, data.devices[device].name));
const nameOf = (device) => `${device + 1} ${data.devices[device].name}`;
// Devices that hold one stage and take turns; the first of them stands for all.
const holdersOf = (view, device) => view.replicas.find((holders) => holders.includes(device)) ?? [device];
const namesOf = (view, device) => holdersOf(view, device).map(nameOf).join(" or ");

function shareBar(share) {
  const fill = element("i", { className: "value" });
  fill.style.width = `${Math.min(100, 100 * share)}%`;
  return element("span", { className: "share-bar" }, element("span", { className: "room" }, fill), " ", percent(share));
}
