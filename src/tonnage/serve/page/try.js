"use strict";
// The form that sends one request to a model.
const SHOWN_CLASSES = 5;
const SHOWN_VALUES = 1000;
const TYPED_VALUES = 200; // so many are written into the form; more are filled in when the request is sent
let offered = "";

const labelled = (text, control) => make("label", {}, `${text} `, control);
const chosenModel = () => byId("try-model").selectedOptions[0]?.model;

function offerModels(models) {
  const ready = models.filter((model) => model.state === "READY" && model.inputs);
  const described = JSON.stringify(ready.map(({ name, version, inputs, outputs }) => [name, version, inputs, outputs]));
  if (described === offered) return;
  offered = described;
  const select = byId("try-model"), before = select.value;
  select.replaceChildren(...ready.map((model) => make("option", { value: keyOf(model), textContent: titleOf(model), model })));
  if (ready.some((model) => keyOf(model) === before)) select.value = before;
  byId("try").hidden = !ready.length;
  byId("try-none").hidden = Boolean(ready.length);
  showInputs();
}

function showInputs() {
  const model = chosenModel();
  byId("try-inputs").replaceChildren(...(model ? model.inputs.map((tensor) => inputField(tensor, model)) : []));
  byId("try-outputs").replaceChildren();
  byId("try-same").hidden = true;
  say("");
}

function say(text, kind = "") {
  byId("try-state").textContent = text;
  byId("try-state").className = kind;
}

// -- inputs -----------------------------------------------------------------------------------------------------------

function inputField(tensor, model) {
  const field = make("fieldset"), picture = pictureOf(tensor), count = elementsOf(closedShape(tensor.shape));
  const sources = [...(picture ? ["an image"] : []), ...(tensor.datatype === "BYTES" ? [] : ["random numbers", "zeros"]), "values"];
  field.tensor = tensor;
  field.picture = picture;
  field.source = make("select", {}, ...sources.map((each) => make("option", { textContent: each })));
  field.source.value = picture ? "an image" : count > TYPED_VALUES ? "random numbers" : "values";
  field.shape = make("input", { value: closedShape(tensor.shape).join(", "), size: 18, inputMode: "numeric" });
  field.values = make("textarea", { spellcheck: false, rows: 3 });
  field.values.value = count > TYPED_VALUES ? "" : JSON.stringify(filled(tensor.datatype, count, false));
  field.values.setAttribute("aria-label", `values of ${tensor.name}, as JSON`);
  const told = ` ${tensor.datatype} [${tensor.shape.join(", ")}]`;
  field.append(make("legend", {}, make("code", { textContent: tensor.name }), told));
  field.append(make("div", { className: "line" }, labelled("from", field.source), labelled("shape", field.shape)));
  if (picture) field.append((field.pictureLine = pictureLine(field, model)));
  field.append(field.values);
  field.source.addEventListener("change", () => showSource(field));
  showSource(field);
  return field;
}

function showSource(field) {
  field.values.hidden = field.source.value !== "values";
  if (field.picture) field.pictureLine.hidden = field.source.value !== "an image";
}

function pictureLine(field, model) {
  const isCaffe = model.platform === "caffe"; // whose networks usually take BGR less ImageNet's mean
  field.file = make("input", { type: "file", accept: "image/*" });
  field.canvas = make("canvas", { width: 1, height: 1, hidden: true });
  field.order = make("select", {}, make("option", { textContent: "RGB" }), make("option", { textContent: "BGR" }));
  field.order.value = isCaffe ? "BGR" : "RGB";
  field.mean = make("input", { value: isCaffe ? "104, 117, 123" : "0, 0, 0", size: 14 });
  field.scale = make("input", { value: "1", size: 8 });
  field.file.addEventListener("change", () => drawPicture(field));
  const settings = [labelled("channels", field.order), labelled("minus mean", field.mean), labelled("times", field.scale)];
  return make("div", { className: "line" }, labelled("file", field.file), field.canvas, ...settings);
}

async function drawPicture(field) {
  const { canvas, picture, tensor } = field;
  canvas.hidden = true;
  if (!field.file.files.length) return;
  try {
    const bitmap = await createImageBitmap(field.file.files[0]);
    const shape = pictureShape(tensor, picture, bitmap.width, bitmap.height);
    canvas.width = shape[picture.columns];
    canvas.height = shape[picture.rows];
    canvas.getContext("2d", { willReadFrequently: true }).drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    canvas.hidden = false;
    field.shape.value = shape.join(", ");
    say("");
  } catch {
    say(`${field.file.files[0].name} is no image that this browser can read`, "bad");
  }
}

const numbersOf = (text) => text.split(",").map((part) => (part.trim() ? Number(part) : NaN));

function inputOf(field) {
  const { name, datatype } = field.tensor, shape = field.shape.value.trim() ? numbersOf(field.shape.value) : [];
  if (!shape.every((size) => Number.isInteger(size) && size >= 0)) throw new Error(`${name}: the shape is a list such as 1, 3, 224, 224`);
  return { name, datatype, shape, data: dataOf(field, elementsOf(shape)) };
}

function dataOf(field, count) {
  const { name, datatype } = field.tensor, source = field.source.value;
  if (source === "an image") return imageOf(field, count);
  if (source !== "values") return filled(datatype, count, source !== "zeros");
  let data;
  try {
    data = JSON.parse(field.values.value);
  } catch {
    throw new Error(`${name}: the values are no JSON; write a list such as ${datatype === "BYTES" ? '["text"]' : "[1, 2, 3]"}`);
  }
  if (!Array.isArray(data)) throw new Error(`${name}: the values are no list`);
  return data;
}

function imageOf(field, count) {
  const { name, datatype } = field.tensor;
  if (field.canvas.hidden) throw new Error(`${name}: choose an image, or take random numbers`);
  const mean = numbersOf(field.mean.value), scale = Number(field.scale.value);
  if (![...mean, scale].every(Number.isFinite)) throw new Error(`${name}: mean and factor are numbers`);
  const values = pictureValues(field.canvas, field.picture, datatype, { isRgb: field.order.value === "RGB", mean, scale });
  if (values.length !== count) throw new Error(`${name}: the image has ${values.length} values, the shape ${count}`);
  return values;
}

// -- outputs ----------------------------------------------------------------------------------------------------------

function showOutput(tensor) {
  const told = ` ${tensor.datatype} [${tensor.shape.join(", ")}]`, count = tensor.data.length;
  const part = make("div", {}, make("p", {}, make("code", { textContent: tensor.name }), told));
  const areScores = tensor.data.every((value) => typeof value === "number") && count > 2 && count === Math.max(...tensor.shape);
  if (areScores) part.append(bestOf(tensor.data));
  const shown = JSON.stringify(tensor.data.slice(0, SHOWN_VALUES));
  const values = make("pre", { textContent: count > SHOWN_VALUES ? `${shown} and ${count - SHOWN_VALUES} more` : shown, tabIndex: 0 });
  part.append(count > 20 ? make("details", {}, make("summary", { textContent: `${count} values` }), values) : values);
  return part;
}

function bestOf(scores) {
  const best = scores.map((score, place) => [score, place]).sort((one, other) => other[0] - one[0]).slice(0, SHOWN_CLASSES);
  const table = make("table", { className: "best" }), most = Math.max(...best.map(([score]) => Math.abs(score)), 1e-30);
  for (const [score, place] of best) {
    const row = table.insertRow(), bar = make("span", { className: "bar" });
    bar.style.width = `${Math.max(0, (120 * score) / most)}px`;
    cell(row, "", `class ${place}`);
    cell(row, "", String(Number(score.toPrecision(4))), "number");
    cell(row, "", bar);
  }
  return table;
}

/** The same request for a shell, where JSON can write it. */
function showCurl(path, request) {
  const link = byId("try-body");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(request.body);
  byId("try-same").hidden = Boolean(request.headers["Inference-Header-Content-Length"]);
  const authorization = token() ? ' -H "Authorization: Bearer $TOKEN"' : "";
  byId("try-curl").textContent = `curl${authorization} '${location.origin}/${path.replaceAll("'", "%27")}' -d @request.json`;
}

async function infer(model) {
  const fields = [...byId("try-inputs").children];
  const path = `v2/models/${encodeURIComponent(model.name)}/versions/${model.version}/infer`;
  const request = encoded(fields.map(inputOf), model.outputs);
  showCurl(path, request);
  const began = performance.now();
  const answer = await ask(path, { method: "POST", ...request });
  const outputs = await decoded(answer);
  say(`answered in ${formatSeconds((performance.now() - began) / 1000)}`, "good");
  byId("try-outputs").replaceChildren(...outputs.map(showOutput));
}

byId("try-model").addEventListener("change", showInputs);
byId("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  const model = chosenModel(), button = byId("try-button");
  if (!model || button.disabled) return;
  button.disabled = true;
  byId("try-outputs").replaceChildren();
  say("running");
  try {
    await infer(model);
  } catch (error) {
    say(error.message, "bad");
  }
  button.disabled = false;
});
