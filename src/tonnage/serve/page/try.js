"use strict";
// The form that sends one request: images are scaled to the size of the input, everything else is JSON.
const SHOWN_CLASSES = 5;
let offered = "";

function offerModels(models) {
  const ready = models.filter((model) => model.state === "READY");
  const names = ready.map((model) => `${model.name} ${model.version}`);
  if (names.join("\n") === offered) return;
  offered = names.join("\n");
  const select = byId("try-model"), before = select.value;
  select.replaceChildren(...names.map((name, place) => {
    const option = document.createElement("option");
    option.value = name;
    option.textContent = name.replace(/ (\S*)$/, ", version $1");
    option.model = ready[place];
    return option;
  }));
  if (names.includes(before)) select.value = before;
  showInputs();
}

const chosenModel = () => byId("try-model").selectedOptions[0]?.model;
const shapeOf = (tensor) => tensor.shape.map((size) => (size < 0 ? 1 : size));

/** Is it a picture? Channels first or last, one or three of them. */
function pictureOf(tensor) {
  const shape = shapeOf(tensor);
  if (!["FP32", "UINT8"].includes(tensor.datatype) || shape.length < 3 || shape.length > 4) return null;
  if (shape.length === 4 && shape[0] !== 1) return null;
  const [first, second, third] = shape.slice(-3);
  if ([1, 3].includes(first) && second > 4) return { channels: first, height: second, width: third, channelsFirst: true };
  if ([1, 3].includes(third) && second > 4) return { channels: third, height: first, width: second, channelsFirst: false };
  return null;
}

function zeros(tensor) {
  const count = shapeOf(tensor).reduce((product, size) => product * size, 1);
  const value = tensor.datatype === "BYTES" ? "" : tensor.datatype === "BOOL" ? false : 0;
  return count > 200 ? "" : JSON.stringify(Array(count).fill(value));
}

function labelled(text, control) {
  const label = document.createElement("label");
  label.append(`${text} `, control);
  return label;
}

function make(name, attributes = {}) {
  return Object.assign(document.createElement(name), attributes);
}

function showInputs() {
  const model = chosenModel();
  byId("try-inputs").replaceChildren(...(model ? model.inputs.map(inputField) : []));
  byId("try-outputs").replaceChildren();
  byId("try-state").textContent = "";
}

function inputField(tensor) {
  const field = make("fieldset"), legend = make("legend"), picture = pictureOf(tensor);
  legend.append(make("code", { textContent: tensor.name }), ` ${tensor.datatype} [${tensor.shape.join(", ")}]`);
  field.append(legend);
  field.tensor = tensor;
  field.shape = make("input", { value: shapeOf(tensor).join(", "), size: 18 });
  field.values = make("textarea", { value: zeros(tensor), placeholder: "[0.1, 0.2, ...]", spellcheck: false });
  field.values.setAttribute("aria-label", `values of ${tensor.name}, as JSON`);
  if (picture) field.append(pictureField(field, picture));
  field.append(labelled("shape", field.shape), field.values);
  return field;
}

function pictureField(field, picture) {
  const line = make("p");
  field.file = make("input", { type: "file", accept: "image/*" });
  field.canvas = make("canvas", { width: picture.width, height: picture.height });
  field.order = make("select");
  field.order.append(make("option", { textContent: "RGB" }), make("option", { textContent: "BGR" }));
  field.mean = make("input", { value: "0, 0, 0", size: 14 });
  field.scale = make("input", { value: "1", size: 6 });
  field.file.addEventListener("change", () => drawPicture(field));
  line.append(labelled("image", field.file), " ", field.canvas, " ", labelled("channels", field.order), " ",
    labelled("minus mean", field.mean), " ", labelled("times", field.scale));
  return line;
}

async function drawPicture(field) {
  const bitmap = await createImageBitmap(field.file.files[0]);
  field.canvas.getContext("2d").drawImage(bitmap, 0, 0, field.canvas.width, field.canvas.height);
  field.values.value = "";
  field.values.placeholder = "the picture above";
}

function pictureValues(field) {
  const { channels, height, width, channelsFirst } = pictureOf(field.tensor);
  const pixels = field.canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const mean = field.mean.value.split(",").map(Number), scale = Number(field.scale.value);
  const places = channels === 1 ? [0] : field.order.value === "RGB" ? [0, 1, 2] : [2, 1, 0];
  const values = new Array(channels * height * width);
  for (let pixel = 0; pixel < height * width; pixel++) {
    for (let channel = 0; channel < channels; channel++) {
      const value = (pixels[4 * pixel + places[channel]] - (mean[channel] || 0)) * scale;
      const whole = field.tensor.datatype === "UINT8" ? Math.max(0, Math.min(255, Math.round(value))) : value;
      values[channelsFirst ? channel * height * width + pixel : pixel * channels + channel] = whole;
    }
  }
  return values;
}

function inputOf(field) {
  const { name, datatype } = field.tensor;
  const shape = field.shape.value.split(",").map((size) => Number(size.trim()));
  let data;
  if (field.values.value.trim()) data = JSON.parse(field.values.value);
  else if (field.file && field.file.files.length) data = pictureValues(field);
  else throw new Error(`${name} has no values`);
  return { name, datatype, shape, data };
}

function showOutput(tensor) {
  const part = make("div"), title = make("p");
  title.append(make("code", { textContent: tensor.name }), ` ${tensor.datatype} [${tensor.shape.join(", ")}]`);
  part.append(title);
  const numbers = tensor.data.every((value) => typeof value === "number");
  if (numbers && tensor.data.length > 2 && tensor.data.length === Math.max(...tensor.shape)) part.append(bestOf(tensor.data));
  const shown = JSON.stringify(tensor.data.slice(0, 1000));
  part.append(make("pre", { textContent: tensor.data.length > 1000 ? `${shown} and ${tensor.data.length - 1000} more` : shown }));
  return part;
}

function bestOf(scores) {
  const table = make("table"), best = scores.map((score, place) => [score, place]).sort((a, b) => b[0] - a[0]).slice(0, SHOWN_CLASSES);
  const most = Math.max(...best.map(([score]) => Math.abs(score)), 1e-30);
  for (const [score, place] of best) {
    const row = table.insertRow(), bar = make("span", { className: "bar" });
    bar.style.width = `${Math.max(0, (160 * score) / most)}px`;
    cell(row, `class ${place}`);
    cell(row, score.toPrecision(4), "number");
    row.insertCell().append(bar);
  }
  return table;
}

byId("try-model").addEventListener("change", showInputs);
byId("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  const model = chosenModel();
  if (!model) return;
  const state = byId("try-state");
  try {
    const inputs = [...byId("try-inputs").children].map(inputOf);
    const path = `v2/models/${encodeURIComponent(model.name)}/versions/${model.version}/infer`;
    const body = JSON.stringify({ inputs });
    byId("try-curl").textContent = `curl ${location.origin}/${path} -d '${body.length > 600 ? `${body.slice(0, 600)}...` : body}'`;
    state.textContent = "running";
    state.className = "";
    const began = performance.now();
    const answer = await ask(path, body);
    state.textContent = `answered in ${formatSeconds((performance.now() - began) / 1000)}`;
    byId("try-outputs").replaceChildren(...answer.outputs.map(showOutput));
  } catch (error) {
    state.textContent = error.message;
    state.className = "bad";
  }
});
