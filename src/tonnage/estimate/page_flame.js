// The flame graph: zoom by hiding what is beside a box, other phases by other widths, search, and text for other tools.
(() => {
  "use strict";
  const flame = document.querySelector(".flame");
  if (!flame) return;
  const ORDER = ["forward", "backward", "optimizer", "copy"];
  const boxes = [...flame.querySelectorAll("li")], root = boxes[0];
  const readout = document.querySelector("#box"), path = document.querySelector("#flame-path");
  const find = document.querySelector("#find"), found = document.querySelector("#found");
  const times = new Map(boxes.map((box) => [box, box.dataset.t.split(" ").map(Number)]));
  let phase = "all", shown = root;

  const nameOf = (box) => box.firstElementChild.textContent;
  const parentOf = (box) => (box === root ? null : box.parentElement.closest("li"));
  const childrenOf = (box) => [...(box.querySelector(":scope > ul")?.children ?? [])].filter((child) => !child.hidden);
  const timeOf = (box) => phase === "all" ? times.get(box).reduce((sum, part) => sum + part, 0) : times.get(box)[ORDER.indexOf(phase)];
  const chain = (box) => (box ? [...chain(parentOf(box)), box] : []);
  const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "0 %");
  const duration = (ns) => (ns < 1e6 ? `${Number((ns / 1e3).toPrecision(3))} µs` : ns < 1e9 ? `${Number((ns / 1e6).toPrecision(3))} ms` : `${Number((ns / 1e9).toPrecision(3))} s`);

  function describe(box) {
    const [forward, backward] = times.get(box), names = chain(box).slice(1).map(nameOf).join(" › ") || nameOf(box);
    const parts = phase === "all" && forward && backward ? `; forward ${duration(forward)}, backward ${duration(backward)}` : "";
    return `${names}: ${duration(timeOf(box))}, ${share(timeOf(box), timeOf(root))} of the GPU's time in a step${parts}`;
  }

  const idle = () => { readout.textContent = `${nameOf(shown)}: ${duration(timeOf(shown))} on the GPU, ${share(timeOf(shown), timeOf(root))}`; };

  function layout() {
    const open = new Set(chain(shown));
    boxes.forEach((box) => {
      const parent = parentOf(box), above = open.has(parent) && parent !== shown;
      box.style.flexGrow = timeOf(box);
      box.hidden = timeOf(box) === 0 || (above && !open.has(box));
      box.classList.toggle("above", open.has(box) && box !== shown);
    });
    path.replaceChildren(...chain(shown).map((box) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = nameOf(box);
      button.disabled = box === shown;
      button.addEventListener("click", () => focusOn(box));
      return button;
    }));
    hideNarrow();
    idle();
    search();
  }

  // A letter or two of a name are only noise.
  function hideNarrow() {
    const narrow = boxes.map((box) => box.clientWidth < 26);
    boxes.forEach((box, index) => box.classList.toggle("narrow", narrow[index]));
  }

  function focusOn(box) {
    shown = box.querySelector(":scope > ul") ? box : parentOf(box) ?? box;
    layout();
  }

  function search() {
    const wanted = find.value.trim().toLowerCase();
    let total = 0, count = 0;
    boxes.forEach((box) => {
      const match = wanted !== "" && timeOf(box) > 0 && nameOf(box).toLowerCase().includes(wanted);
      box.classList.toggle("match", match);
      if (!match) return;
      count += 1;
      // A box in a box that is found already is not counted twice.
      if (!chain(parentOf(box)).some((above) => above.classList.contains("match"))) total += timeOf(box);
    });
    flame.classList.toggle("searched", wanted !== "");
    found.textContent = wanted === "" ? "" : !count ? "nothing found" : `${count} found, ${duration(total)}, ${share(total, timeOf(root))} of the step`;
  }

  function folded() {
    const lines = boxes.filter((box) => !box.querySelector(":scope > ul") && timeOf(box) > 0);
    const clean = (name) => name.replace(/[;\n\r]/g, "_");
    return lines.map((box) => `${chain(box).map((above) => clean(nameOf(above))).join(";")} ${timeOf(box)}\n`).join("");
  }

  function move(box, next) {
    if (!next) return;
    boxes.forEach((other) => { other.tabIndex = -1; });
    next.tabIndex = 0;
    next.focus({ preventScroll: true });
  }

  function key(event, box) {
    const around = parentOf(box) ? childrenOf(parentOf(box)) : [box], place = around.indexOf(box);
    const next = { ArrowUp: parentOf(box), ArrowDown: childrenOf(box)[0], ArrowLeft: around[place - 1], ArrowRight: around[place + 1], Home: shown }[event.key];
    if (event.key === "Enter" || event.key === " ") focusOn(box);
    else if (event.key === "Escape") { focusOn(parentOf(shown) ?? root); move(box, shown); }
    else if (next) move(box, next);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  boxes.forEach((box) => {
    box.tabIndex = box === root ? 0 : -1;
    box.setAttribute("aria-label", `${nameOf(box)}, ${duration(timeOf(box))}`);
    box.addEventListener("focus", () => { readout.textContent = describe(box); });
  });
  flame.addEventListener("pointerover", (event) => {
    const box = event.target.closest("li");
    if (box) readout.textContent = describe(box);
  });
  flame.addEventListener("pointerleave", idle);
  flame.addEventListener("click", (event) => {
    const box = event.target.closest("li");
    if (box) { move(null, box); focusOn(box); readout.textContent = describe(box); }
  });
  flame.addEventListener("keydown", (event) => { const box = event.target.closest("li"); if (box) key(event, box); });
  find.addEventListener("input", search);
  document.querySelectorAll("[name=flame-phase]").forEach((radio) => radio.addEventListener("change", () => {
    phase = radio.value;
    shown = timeOf(shown) ? shown : root;
    layout();
  }));
  document.querySelector("#folded").addEventListener("click", (event) => {
    const link = event.currentTarget;
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([folded()], { type: "text/plain" }));
  });
  layout();
  new ResizeObserver(hideNarrow).observe(flame);
})();
