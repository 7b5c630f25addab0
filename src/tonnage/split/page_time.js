// The time-line: a row for each device with a bar for each sample, thin bars below it for what it sends.
(() => {
  const LEFT = 150, WIDTH = 1040, BAR = 20, THIN = 4, MOST_LANES = 4, IDLE = "Point at a bar to read it, or focus the time-line and use the arrow keys.";
  const place = one("#time-line"), readout = one("#bar"), note = one("#time-note"), unit = data.training ? "micro-batch" : "sample";
  let bars = [], current = -1;

  const slots = (time) => chunks(time.bars, 4).map(([row, item, begin, length]) => ({ row, item, begin, length }));
  const moves = (time) => chunks(time.moves, 6).map(([row, to, item, begin, length, narrow]) => ({ row, to, item, begin, length, narrow }));

  function chunks(list, size) {
    return Array.from({ length: list.length / size }, (_, at) => list.slice(at * size, (at + 1) * size));
  }

  // What goes on at once lies in lanes below each other.
  function stack(bars) {
    const ends = [];
    bars.forEach((bar) => {
      let lane = ends.findIndex((end) => end <= bar.begin);
      if (lane < 0) lane = ends.length < MOST_LANES ? ends.length : MOST_LANES - 1;
      ends[lane] = bar.begin + bar.length;
      bar.lane = lane;
    });
    return ends.length;
  }

  function text(bar, time) {
    const at = (ticks) => duration((ticks * time.end) / time.ticks), pass = data.training ? (bar.item % 2 ? ", backward" : ", forward") : "";
    const what = bar.to === undefined ? `${nameOf(bar.row)} computes ${unit}` : `${nameOf(bar.row)} sends to ${nameOf(bar.to)}, ${unit}`;
    return `${what} ${(bar.item >> 1) + 1}${pass}: ${bar.begin ? `from ${at(bar.begin)} ` : "from the beginning "}for ${at(bar.length)}`;
  }

  function ticks(svg, time, height) {
    const power = 10 ** Math.floor(Math.log10(time.end / 8)), step = [1, 2, 5, 10].map((f) => f * power).find((s) => time.end / s <= 8);
    for (let number = 0; number * step <= time.end * (1 + 1e-9); number += 1) {
      const x = LEFT + (WIDTH * number * step) / time.end;
      svg.append(drawn("line", { class: "tick", x1: x, x2: x, y1: 0, y2: height }),
        drawn("text", { class: "tick", x, y: height + 14, "text-anchor": x > LEFT + WIDTH * 0.97 ? "end" : "middle" }, number ? duration(number * step) : "0"));
    }
  }

  function addBar(svg, bar, y, height, time) {
    const x = LEFT + (WIDTH * bar.begin) / time.ticks, width = Math.max(0.8, (WIDTH * bar.length) / time.ticks - (bar.length > 20 ? 0.8 : 0));
    const thin = bar.to !== undefined, back = bar.item % 2 ? " back" : "";
    bar.text = text(bar, time);
    bar.rect = drawn("rect", { class: thin ? `move ${hue(bar.to)}${back}` : `slot ${hue(bar.row)}${back}`, x: x.toFixed(1), y, width: width.toFixed(1), height, "data-bar": bars.push(bar) - 1 });
    svg.append(bar.rect);
    const digits = String((bar.item >> 1) + 1);
    if (!thin && width > 6 * digits.length + 4) svg.append(drawn("text", { class: `in ${hue(bar.row)}${back}`, x: (x + width / 2).toFixed(1), y: y + height / 2 + 4 }, digits));
  }

  function label(svg, y, device, isSlowest, words) {
    const shown = words ?? data.devices[device].name, cut = shown.length > 17 ? `…${shown.slice(-16)}` : shown;
    if (device !== null) {
      svg.append(drawn("rect", { class: `tag ${hue(device)}`, x: 0, y: y + 1, width: 20, height: 17, rx: 3 }),
        drawn("text", { class: `in ${hue(device)}`, x: 10, y: y + 14 }, String(device + 1)));
    }
    svg.append(drawn("text", { x: device === null ? 0 : 26, y: y + 14, class: isSlowest ? "slowest" : "" }, drawn("title", {}, shown), cut));
    if (isSlowest) svg.append(drawn("text", { class: "why", x: device === null ? 0 : 26, y: y + 27 }, "sets the period"));
  }

  function draw(view) {
    const { time } = view, computed = slots(time), sent = moves(time), svg = drawn("svg", { class: "time", role: "img", tabindex: 0 });
    const rows = [];
    bars = [];
    let top = 4;
    time.rows.forEach((device) => {
      const own = sent.filter((move) => move.row === device), lanes = stack(own), slowest = data.devices[device].name === view.bottleneck;
      const height = Math.max(BAR + 3 + lanes * THIN, slowest ? 32 : 0);
      rows.push({ device, own, slowest, top, height });
      top += height + 7;
    });
    const narrow = sent.filter((move) => move.narrow);
    const onLane = !rows.some((row) => row.slowest) && narrow.length;
    const height = top + (onLane ? 34 : 0);
    svg.setAttribute("viewBox", `0 0 ${LEFT + WIDTH + 6} ${height + 20}`);
    rows.filter((row) => row.slowest).forEach((row) => svg.append(drawn("rect", { class: "marked", x: 0, y: row.top - 3, width: LEFT + WIDTH, height: row.height + 6 })));
    if (onLane) svg.append(drawn("rect", { class: "marked", x: 0, y: top - 3, width: LEFT + WIDTH, height: 36 }));
    ticks(svg, time, height);
    rows.forEach((row) => {
      label(svg, row.top, row.device, row.slowest);
      computed.filter((slot) => slot.row === row.device).forEach((slot) => addBar(svg, slot, row.top, BAR, time));
      row.own.forEach((move) => addBar(svg, move, row.top + BAR + 2 + move.lane * THIN, THIN - 1, time));
    });
    if (onLane) {
      label(svg, top, null, true, view.bottleneck);
      narrow.forEach((move) => addBar(svg, { ...move }, top, BAR, time));
    }
    svg.setAttribute("aria-label", `${many(computed.length, "bar")} on ${many(rows.length, "device")} over ${duration(time.end)}`);
    return svg;
  }

  function show(index) {
    all(".same", place).forEach((rect) => rect.classList.remove("same"));
    current = index;
    readout.textContent = index < 0 ? IDLE : bars[index].text;
    if (index >= 0) bars.filter((bar) => bar.item >> 1 === bars[index].item >> 1).forEach((bar) => bar.rect.classList.add("same"));
    place.classList.toggle("following", index >= 0);
  }

  function words(view) {
    const { time } = view, what = data.training ? `A step of ${many(time.samples, unit)}: ${duration(time.end)}.` : `${many(time.samples, unit)}, one every ${duration(view.metrics.period)}.`;
    const back = data.training ? " Pale bars with an outline are backward." : "";
    const rest = time.whole ? "" : " There are more bars than are drawn: the last ones are left out.";
    return `${what} The thin bars below a device are what it sends, in the colour of the receiver.${back}${rest}`;
  }

  painters.push((view) => {
    note.textContent = words(view);
    const svg = draw(view);
    place.replaceChildren(svg);
    show(-1);
    svg.addEventListener("pointerover", (event) => { if (event.target.dataset.bar) show(Number(event.target.dataset.bar)); });
    svg.addEventListener("pointerleave", () => show(-1));
    svg.addEventListener("blur", () => show(-1));
    svg.addEventListener("keydown", (event) => {
      const next = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: bars.length - 1 }[event.key];
      if (next === undefined || !bars.length) return;
      event.preventDefault();
      show(Math.min(Math.max(next, 0), bars.length - 1));
    });
  });
})();
