"use strict";
// Values of tensors: from pictures, by chance, as typed; and the bytes of those that JSON cannot write.
const MOST_SIDE = 512; // of a picture whose model takes any size

const elementsOf = (shape) => shape.reduce((product, size) => product * size, 1);
const isWhole = (datatype) => /^U?INT/.test(datatype);
const isHalf = (datatype) => datatype === "FP16" || datatype === "BF16";

/** Where the channels, rows and columns of a picture are; null for what is none. Sizes may be open. */
function pictureOf(tensor) {
  const { shape, datatype } = tensor, first = shape.length - 3;
  if (!["FP32", "FP16", "BF16", "UINT8"].includes(datatype) || first < 0 || first > 1) return null;
  if (first === 1 && shape[0] > 1) return null;
  const [one, two, three] = shape.slice(-3), isSide = (size) => size < 0 || size > 4;
  if ([1, 3].includes(one) && isSide(two) && isSide(three)) return { channels: one, rows: first + 1, columns: first + 2, channelsFirst: true };
  if ([1, 3].includes(three) && isSide(one) && isSide(two)) return { channels: three, rows: first, columns: first + 1, channelsFirst: false };
  return null;
}

/** Each size, with `free` for those that the model leaves open. */
const closedShape = (shape, free = 1) => shape.map((size) => (size < 0 ? free : size));

/** The sizes to scale a picture to: the model's, else its own, made smaller where it is large. */
function pictureShape(tensor, picture, width, height) {
  const shape = closedShape(tensor.shape), smaller = Math.min(1, MOST_SIDE / Math.max(width, height));
  if (tensor.shape[picture.rows] < 0) shape[picture.rows] = Math.max(1, Math.round(height * smaller));
  if (tensor.shape[picture.columns] < 0) shape[picture.columns] = Math.max(1, Math.round(width * smaller));
  return shape;
}

/** Pixels as numbers in the order of the tensor, less the mean, times the scale. */
function pictureValues(canvas, picture, datatype, { isRgb, mean, scale }) {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const { channels, channelsFirst } = picture, area = canvas.width * canvas.height;
  const values = new Array(channels * area);
  for (let pixel = 0; pixel < area; pixel++) {
    for (let channel = 0; channel < channels; channel++) {
      const value = (colour(pixels, 4 * pixel, channels, isRgb ? channel : 2 - channel) - (mean[channel] || 0)) * scale;
      values[channelsFirst ? channel * area + pixel : pixel * channels + channel] =
        datatype === "UINT8" ? Math.max(0, Math.min(255, Math.round(value))) : value;
    }
  }
  return values;
}

function colour(pixels, place, channels, channel) {
  if (channels === 3) return pixels[place + channel];
  return 0.299 * pixels[place] + 0.587 * pixels[place + 1] + 0.114 * pixels[place + 2];
}

function filled(datatype, count, isRandom) {
  const value = {
    BYTES: () => "",
    BOOL: () => isRandom && Math.random() < 0.5,
  }[datatype] || (isWhole(datatype) ? () => (isRandom ? Math.floor(2 * Math.random()) : 0) : () => (isRandom ? Math.random() : 0));
  return Array.from({ length: count }, value);
}

/** FP16 and BF16 as bytes: neither has a form in JSON. */
function halfBytes(values, datatype) {
  const bytes = new DataView(new ArrayBuffer(2 * values.length)), whole = new DataView(new ArrayBuffer(4));
  if (datatype === "FP16" && !bytes.setFloat16) throw new Error("this browser cannot write FP16");
  values.forEach((value, place) => {
    if (datatype === "FP16") return bytes.setFloat16(2 * place, value, true);
    whole.setFloat32(0, value);
    return bytes.setUint16(2 * place, whole.getUint16(0), true);
  });
  return bytes.buffer;
}

function halfValues(bytes, datatype) {
  const view = new DataView(bytes), whole = new DataView(new ArrayBuffer(4));
  if (datatype === "FP16" && !view.getFloat16) throw new Error("this browser cannot read FP16");
  return Array.from({ length: bytes.byteLength / 2 }, (_, place) => {
    if (datatype === "FP16") return view.getFloat16(2 * place, true);
    whole.setUint16(0, view.getUint16(2 * place, true));
    return whole.getFloat32(0);
  });
}

/** A request as `fetch` sends it: JSON, and behind it what has no form there. */
function encoded(inputs, outputs) {
  const binary = [];
  const told = inputs.map((input) => {
    if (!isHalf(input.datatype)) return input;
    const { data, ...rest } = input, bytes = halfBytes(data.flat(Infinity), input.datatype);
    binary.push(bytes);
    return { ...rest, parameters: { binary_data_size: bytes.byteLength } };
  });
  const request = { inputs: told };
  if (outputs.some((output) => isHalf(output.datatype))) {
    request.outputs = outputs.map(({ name, datatype }) => ({ name, parameters: { binary_data: isHalf(datatype) } }));
  }
  const head = new TextEncoder().encode(JSON.stringify(request));
  return { body: new Blob([head, ...binary]), headers: binary.length ? { "Inference-Header-Content-Length": head.length } : {} };
}

/** The outputs of an answer, all with `data`. */
async function decoded(answer) {
  const size = answer.headers.get("Inference-Header-Content-Length");
  if (size === null) return (await answer.json()).outputs;
  const bytes = await answer.arrayBuffer();
  let place = Number(size);
  return JSON.parse(new TextDecoder().decode(bytes.slice(0, place))).outputs.map((output) => {
    const length = output.parameters?.binary_data_size;
    if (length === undefined) return output;
    place += length;
    return { ...output, data: halfValues(bytes.slice(place - length, place), output.datatype) };
  });
}
