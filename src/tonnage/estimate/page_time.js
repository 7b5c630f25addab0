// The time-lines of a step: zoom, and the call under the pointer or the keys.
(() => {
  "use strict";
  const source = document.querySelector("#step-data"), timeline = document.querySelector(".timeline");
  if (!source || !timeline) return;
  const { step, phases, lanes, names } = JSON.parse(source.textContent);
  const LEAST = 1 / 400, IDLE = "Point at a call to read it; drag over a stretch to zoom in, or focus a line and use the arrow keys, + and −.";
  const tracks = [...timeline.querySelectorAll(".track")], axis = timeline.querySelector(".axis");
  const readout = document.querySelector("#call"), width = Number(tracks[0].querySelector("svg").getAttribute("viewBox").split(" ")[2]);
  let from = 0, to = 1; // what is shown, as shares of the step

  function duration(nanoseconds) {
    const [unit, size] = nanoseconds < 1e6 ? ["µs", 1e3] : nanoseconds < 1e9 ? ["ms", 1e6] : ["s", 1e9];
    return `${Number((nanoseconds / size).toPrecision(3))} ${unit}`;
  }

  function drawAxis() {
    const length = (to - from) * step, power = 10 ** Math.floor(Math.log10(length / 8));
    const apart = [1, 2, 5, 10].map((factor) => factor * power).find((size) => length / size <= 8);
    axis.replaceChildren();
    for (let at = Math.ceil((from * step) / apart - 1e-9) * apart; at <= to * step * (1 + 1e-9); at += apart) {
      const tick = document.createElement("span"), digits = Math.max(0, Math.ceil(-Math.log10(apart / 1e6)));
      tick.style.left = `${(100 * (at / step - from)) / (to - from)}%`;
      tick.textContent = at < apart / 2 ? "0" : step < 1e6 ? `${(at / 1e3).toFixed(Math.max(0, digits - 3))} µs` : `${(at / 1e6).toFixed(digits)} ms`;
      axis.append(tick);
    }
  }

  function zoom(begin, end) {
    const size = Math.min(1, Math.max(end - begin, LEAST));
    from = Math.min(Math.max((begin + end - size) / 2, 0), 1 - size);
    to = from + size;
    tracks.forEach((track, lane) => {
      track.querySelector("svg").setAttribute("viewBox", `${from * width} 0 ${size * width} 1`);
      // Lines between calls, once there is room for them.
      track.classList.toggle("close", track.clientWidth > 5 * size * lanes[lane].length);
    });
    timeline.dataset.shown = `${from.toFixed(4)} ${to.toFixed(4)}`;
    drawAxis();
    clear();
  }

  const zoomBy = (factor, at = (from + to) / 2) => zoom(at - (at - from) * factor, at + (to - at) * factor);

  function clear() {
    timeline.querySelectorAll(".mark").forEach((mark) => { mark.hidden = true; });
    readout.textContent = IDLE;
  }

  function show(lane, index) {
    const [start, length, phase, operator, module, calls, ahead] = lanes[lane][index];
    const mark = tracks[lane].querySelector(".mark"), scale = 100 / (to - from);
    clear();
    mark.hidden = false;
    mark.style.left = `${(start / step - from) * scale}%`;
    mark.style.width = `${(length / step) * scale}%`;
    const many = calls > 1 ? `${calls} calls, the longest ` : "";
    const where = names[module] ? ` in ${names[module]}` : "";
    const when = `${lane ? "runs" : ahead ? "launched for the next step" : "launched"} at ${duration(start)} for ${duration(length)}`;
    readout.textContent = `${many}${names[operator]}${where}, ${phases[phase]}: ${when}`;
    tracks[lane].dataset.index = index;
    tracks[lane].setAttribute("aria-label", readout.textContent);
  }

  // The last call that begins before a moment, or the one after it where that is nearer.
  function nearest(lane, moment) {
    const calls = lanes[lane];
    let low = 0, high = calls.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (calls[middle][0] <= moment) low = middle; else high = middle - 1;
    }
    const next = calls[low + 1], past = moment - calls[low][0] - calls[low][1];
    return next && past > 0 && next[0] - moment < past ? low + 1 : low;
  }

  const share = (event, track) => {
    const box = track.getBoundingClientRect();
    return from + (Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1)) * (to - from);
  };

  function pointing(track, lane) {
    let begun = null;
    const band = document.createElement("i");
    band.className = "band";
    band.hidden = true;
    track.append(band);
    track.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      begun = share(event, track);
      track.setPointerCapture(event.pointerId);
    });
    track.addEventListener("pointermove", (event) => {
      const at = share(event, track), scale = 100 / (to - from);
      if (begun === null) { if (lanes[lane].length) show(lane, nearest(lane, at * step)); return; }
      band.hidden = false;
      band.style.left = `${(Math.min(begun, at) - from) * scale}%`;
      band.style.width = `${Math.abs(at - begun) * scale}%`;
    });
    const end = (event) => {
      const at = share(event, track), start = begun;
      begun = null;
      band.hidden = true;
      if (event.type === "pointerup" && start !== null && Math.abs(at - start) > (to - from) / 100) zoom(Math.min(start, at), Math.max(start, at));
    };
    track.addEventListener("pointerup", end);
    track.addEventListener("pointercancel", end);
    track.addEventListener("pointerleave", () => { if (begun === null) clear(); });
    // A plain wheel scrolls the page, as everywhere.
    track.addEventListener("wheel", (event) => {
      const sideways = event.shiftKey ? event.deltaY : event.deltaX;
      if (event.ctrlKey || event.metaKey) zoomBy(event.deltaY > 0 ? 1.25 : 0.8, share(event, track));
      else if (sideways) zoom(from + (Math.sign(sideways) * (to - from)) / 10, to + (Math.sign(sideways) * (to - from)) / 10);
      else return;
      event.preventDefault();
    }, { passive: false });
  }

  function keys(track, lane) {
    track.tabIndex = 0;
    track.addEventListener("blur", clear);
    track.addEventListener("keydown", (event) => {
      const last = lanes[lane].length - 1, index = Number(track.dataset.index ?? nearest(lane, from * step));
      const moves = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last, PageUp: index - 20, PageDown: index + 20 };
      const zooms = { "+": 0.5, "=": 0.5, "-": 2, 0: Infinity };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape") clear();
      if (event.key in zooms) {
        const call = lanes[lane][index], at = call ? (call[0] + call[1] / 2) / step : undefined;
        if (event.key === "0") zoom(0, 1); else zoomBy(zooms[event.key], at);
      } else if (event.key in moves && last >= 0) {
        const next = Math.min(Math.max(moves[event.key], 0), last), [start, length] = lanes[lane][next];
        const middle = (start + length / 2) / step;
        if (middle < from || middle > to) zoom(middle - (to - from) / 2, middle + (to - from) / 2);
        show(lane, next);
      } else return;
      event.preventDefault();
    });
  }

  function choosePhase(name) {
    const own = lanes[1].filter((call) => phases[call[2]] === name);
    const begin = Math.min(...own.map((call) => call[0])), end = Math.max(...own.map((call) => call[0] + call[1]));
    const margin = 0.02 * (end - begin);
    zoom((begin - margin) / step, (end + margin) / step);
  }

  tracks.forEach((track, lane) => { pointing(track, lane); keys(track, lane); });
  document.querySelectorAll(".zoom button").forEach((button) => button.addEventListener("click", () => {
    const { zoom: factor, phase } = button.dataset;
    if (phase) choosePhase(phase);
    else if (factor === "all") zoom(0, 1);
    else zoomBy(Number(factor));
  }));
  zoom(0, 1);
})();
