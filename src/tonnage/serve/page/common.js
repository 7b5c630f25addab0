"use strict";
// What the other files of the page share.
const byId = (id) => document.getElementById(id);
const token = () => sessionStorage.getItem("token") || "";
const keyOf = (model) => `${model.name} ${model.version}`;
const titleOf = (model) => `${model.name}, version ${model.version}`;

class Refused extends Error {}

/** The server's answer; `Refused` where it wants a token. */
async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(token() ? { Authorization: `Bearer ${token()}` } : {}) };
  const answer = await fetch(path, { ...options, headers });
  if (answer.ok) return answer;
  const text = await answer.text();
  let told = `the server answered ${answer.status}`;
  try {
    told = JSON.parse(text).error || told;
  } catch {
    // what stands between here and the server answers as it likes
  }
  if (answer.status !== 401 && answer.status !== 403) throw new Error(told);
  askForToken(told);
  throw new Refused(told);
}

function askForToken(told) {
  byId("token-state").textContent = token() ? told : "";
  if (!byId("token-form").hidden) return;
  byId("token-form").hidden = false;
  byId("token").focus();
}

function make(name, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(name), attributes);
  node.append(...children);
  return node;
}

function cell(row, label, text, kind = "") {
  const made = row.insertCell();
  made.className = kind;
  made.dataset.label = label;
  made.append(text);
  return made;
}
