// The graph: boxes in the colours of their devices, cut tensors as thick lines, zoom, and what is under the pointer or the keys.
(() => {
  const LABELS = 8, BAND = 11, GAP = 46;
  const svg = one(".graph"), canvas = one(".canvas"), readout = one("#box");
  const groups = all("#boxes > g", svg), frame = one("rect", groups[0]), width = Number(frame.getAttribute("width")), height = Number(frame.getAttribute("height"));
  const { id, kind, name, output, weights, words } = data.operations;
  const boxOf = [], natural = Number(svg.getAttribute("width"));
  const IDLE = "Point at a box or at a thick line to read it, or focus a box and use the arrow keys.";
  let texts = [], current = 0, scale = 1;
  data.boxes.forEach((members, box) => members.forEach((operation) => { boxOf[operation] = box; }));

  function countsOf(members, view) {
    const counts = new Map();
    members.forEach((operation) => counts.set(view.places[operation], (counts.get(view.places[operation]) ?? 0) + 1));
    return counts;
  }

  function paintBox(group, counts) {
    const devices = [...counts.keys()], total = [...counts.values()].reduce((a, b) => a + b);
    all(".piece", group).forEach((piece) => piece.remove());
    group.setAttribute("class", devices.length > 1 ? "mixed" : hue(devices[0]));
    group.dataset.devices = ` ${devices.join(" ")} `;
    if (devices.length === 1) {
      group.append(drawn("text", { class: "piece number", x: 10, y: 16 }, String(devices[0] + 1)));
      return;
    }
    let left = 0;
    for (const [device, count] of counts) {
      const size = (width * count) / total;
      group.append(drawn("g", { class: `piece ${hue(device)}` },
        drawn("rect", { x: left, y: height - BAND, width: size, height: BAND }),
        drawn("text", { class: "number", x: left + size / 2, y: height - 2 }, size > 11 ? String(device + 1) : "")));
      left += size;
    }
  }

  // The tensors that each line between boxes stands for, where their ends are on different devices.
  function cutLines(view) {
    const lines = new Map(), inside = new Map();
    for (let at = 0; at < data.edges.length; at += 2) {
      const producer = data.edges[at], target = view.places[data.edges[at + 1]];
      if (view.places[producer] === target) continue;
      const [from, to] = [boxOf[producer], boxOf[data.edges[at + 1]]], found = from === to ? inside : lines, key = from === to ? from : `${from},${to}`;
      if (!found.has(key)) found.set(key, new Map());
      found.get(key).set(`${producer} ${target}`, producer);
    }
    return { lines, inside };
  }

  const sum = (tensors) => [...new Set(tensors.values())].reduce((total, producer) => total + output[producer], 0);

  function describe(tensors, view) {
    const ways = new Set([...tensors].map(([key, producer]) => `${namesOf(view, view.places[producer])} to ${namesOf(view, Number(key.split(" ")[1]))}`));
    const made = [...new Set(tensors.values())];
    return `${many(made.length, "tensor")}, ${formatBytes(sum(tensors))}, from ${[...ways].join(", ")}: ${made.slice(0, 5).map((each) => id[each]).join(", ")}${made.length > 5 ? ", …" : ""}`;
  }

  function paintLines(view, lines) {
    const cuts = one("#cuts", svg), labels = one("#cut-labels", svg), paths = all("#edges path", svg);
    const sizes = [...lines.values()].map((tensors) => Math.log(sum(tensors) + 1));
    const least = Math.min(...sizes), most = Math.max(...sizes);
    cuts.replaceChildren();
    labels.replaceChildren();
    const painted = [];
    paths.forEach((path) => {
      const tensors = lines.get(path.dataset.edge);
      if (!tensors) return;
      const bytes = sum(tensors), share = most > least ? (Math.log(bytes + 1) - least) / (most - least) : 0.5;
      const line = drawn("path", { d: path.getAttribute("d"), "stroke-width": (2 + 4 * share).toFixed(1) }, drawn("title", {}, describe(tensors, view)));
      line.addEventListener("pointerenter", () => { readout.textContent = describe(tensors, view); });
      line.addEventListener("pointerleave", () => { readout.textContent = IDLE; });
      cuts.append(line);
      painted.push([bytes, line]);
    });
    labelHeaviest(painted, labels);
  }

  function labelHeaviest(painted, labels) {
    const taken = [];
    painted.sort((a, b) => b[0] - a[0]);
    for (const [bytes, line] of painted) {
      if (taken.length >= LABELS) break;
      const { x, y } = line.getPointAtLength(GAP / 2);
      if (taken.some((other) => Math.abs(other.x - x) < 52 && Math.abs(other.y - y) < 13)) continue;
      taken.push({ x, y });
      labels.append(drawn("text", { x: x.toFixed(0), y: (y - 5).toFixed(0) }, formatBytes(bytes, 1)));
    }
  }

  function boxText(members, counts, inside, view) {
    const kinds = new Map();
    members.forEach((each) => kinds.set(words[kind[each]], (kinds.get(words[kind[each]]) ?? 0) + 1));
    const list = [...kinds].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([word, count]) => (count > 1 ? `${count} × ${word}` : word));
    const first = members[0], bytes = members.reduce((total, each) => total + weights[each], 0);
    const what = members.length === 1 ? `${[id[first], words[name[first]]].filter(Boolean).join(", ")} (${words[kind[first]]})`
      : `${many(members.length, "operation")} from ${id[first]} to ${id[members[members.length - 1]]} (${list.join(", ")}${kinds.size > 6 ? ", …" : ""})`;
    const where = [...counts].map(([device, count]) => (counts.size > 1 ? `${count} on ${namesOf(view, device)}` : `on ${namesOf(view, device)}`)).join(", ");
    const between = inside ? `; ${formatBytes(sum(inside))} go from one device to another in here` : "";
    return `${what}: ${where}${bytes ? `; ${formatBytes(bytes)} of weights` : ""}${between}`;
  }

  function focusing(group, box) {
    group.setAttribute("role", "img");
    group.setAttribute("tabindex", box ? -1 : 0);
    const show = () => { readout.textContent = texts[box]; };
    group.addEventListener("pointerenter", show);
    group.addEventListener("pointerleave", () => { readout.textContent = IDLE; });
    group.addEventListener("focus", show);
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key], next = groups[box + step];
      if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 1.4 : 1 / 1.4);
      if (!next) return;
      event.preventDefault();
      groups[current].setAttribute("tabindex", -1);
      current = box + step;
      next.setAttribute("tabindex", 0);
      next.focus();
    });
  }

  // Around a point of the canvas that stays where it is.
  function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
    const before = svg.getBoundingClientRect().width;
    scale = Math.min(6, Math.max(0.15, (before * factor) / natural));
    svg.style.width = `${natural * scale}px`;
    const grown = (natural * scale) / before;
    canvas.scrollLeft = (canvas.scrollLeft + x) * grown - x;
    canvas.scrollTop = (canvas.scrollTop + y) * grown - y;
  }

  function zoomTo(what) {
    if (what === "width") { svg.style.width = ""; return; }
    if (what !== "all") { zoom(Number(what)); return; }
    const box = svg.getBoundingClientRect();
    zoom(Math.min((canvas.clientWidth - 2) / box.width, (canvas.clientHeight - 2) / box.height));
  }

  function dragging() {
    let from = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return; // fingers scroll by themselves
      from = [event.clientX + canvas.scrollLeft, event.clientY + canvas.scrollTop];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!from) return;
      canvas.scrollLeft = from[0] - event.clientX;
      canvas.scrollTop = from[1] - event.clientY;
    });
    ["pointerup", "pointerleave"].forEach((type) => canvas.addEventListener(type, () => { from = null; }));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls
      const box = canvas.getBoundingClientRect();
      zoom(event.deltaY > 0 ? 0.8 : 1.25, event.clientX - box.left, event.clientY - box.top);
      event.preventDefault();
    }, { passive: false });
  }

  painters.push((view) => {
    const { lines, inside } = cutLines(view);
    texts = data.boxes.map((members, box) => {
      const counts = countsOf(members, view), text = boxText(members, counts, inside.get(box), view);
      paintBox(groups[box], counts);
      groups[box].setAttribute("aria-label", text);
      return text;
    });
    paintLines(view, lines);
    readout.textContent = IDLE;
  });
  groups.forEach(focusing);
  dragging();
  all("[data-zoom]").forEach((button) => button.addEventListener("click", () => zoomTo(button.dataset.zoom)));
})();
