// Tables of the distribution that is shown: cut tensors, devices, links; and the devices beside the graph.
(() => {
  const { id, kind, output, words } = data.operations;
  const rate = (bytes) => `${Number(((8 * bytes) / 1e9).toPrecision(3))} Gbit/s`;

  // A cell is what it shows and, for numbers, what it is sorted by.
  function cell(content, sort, className = "") {
    const made = element("td", { className }, content);
    if (sort !== undefined) made.dataset.sort = sort;
    return made;
  }

  function fill(table, rows) {
    all("[aria-sort]", table).forEach((head) => head.removeAttribute("aria-sort"));
    table.tBodies[0].replaceChildren(...rows.map((cells) => element("tr", {}, ...cells)));
  }

  function cutRows(view) {
    const byTensor = new Map();
    view.cuts.forEach(([producer, target, seconds]) => {
      if (!byTensor.has(producer)) byTensor.set(producer, []);
      byTensor.get(producer).push([target, seconds]);
    });
    return [...byTensor].sort((a, b) => output[b[0]] - output[a[0]]).map(([producer, targets]) => {
      const seconds = Math.max(...targets.map((each) => each[1])), source = view.places[producer];
      const to = element("span", { className: "list" }, ...targets.flatMap(([target]) => holdersOf(view, target).map(named)));
      return [cell(element("code", {}, id[producer]), undefined, "text path"), cell(words[kind[producer]], undefined, "text"),
        cell(element("span", { className: "list" }, ...holdersOf(view, source).map(named)), source, "text"), cell(to, targets[0][0], "text"),
        cell(formatBytes(output[producer]), output[producer]), cell(duration(seconds), seconds)];
    });
  }

  // Bytes that each device sends and receives.
  function traffic(view) {
    const sent = data.devices.map(() => 0), received = data.devices.map(() => 0);
    view.traffic.forEach(([source, target, bytes]) => { sent[source] += bytes; received[target] += bytes; });
    return { sent, received };
  }

  function deviceRows(view) {
    const { sent, received } = traffic(view), memory = new Map(view.memory), counts = new Map();
    view.places.forEach((device) => counts.set(device, (counts.get(device) ?? 0) + 1));
    return view.busy.map(([device, busy]) => {
      const of = data.devices[device], share = of.memory ? memory.get(device) / of.memory : 0;
      const operations = counts.get(holdersOf(view, device)[0]), busyShare = view.metrics.period ? busy / view.metrics.period : 0, slowest = of.name === view.bottleneck ? " slowest" : "";
      return [cell(named(device), device, `text${slowest}`), cell(of.speed === 1 ? of.kind : `${of.kind} × ${of.speed}`, undefined, "text"),
        cell(operations.toLocaleString("en"), operations), cell(duration(busy), busy), cell(shareBar(busyShare), busyShare, "text"),
        cell(formatBytes(memory.get(device)), memory.get(device)), cell(of.memory ? shareBar(share) : "–", share, "text"),
        cell(formatBytes(sent[device]), sent[device]), cell(formatBytes(received[device]), received[device])];
    });
  }

  function laneRows(view) {
    return [...view.lanes].sort((a, b) => b[1] - a[1]).map(([lane, seconds]) => {
      const { name, rate: bytes } = data.lanes[lane], share = view.metrics.period ? seconds / view.metrics.period : 0;
      return [cell(element("code", {}, name), undefined, `text${name === view.bottleneck ? " slowest" : ""}`),
        cell(rate(bytes), bytes), cell(duration(seconds), seconds), cell(shareBar(share), share, "text")];
    });
  }

  function legend(view) {
    const memory = new Map(view.memory), items = view.busy.map(([device, busy]) => {
      const of = data.devices[device], share = of.memory ? shareBar(memory.get(device) / of.memory) : formatBytes(memory.get(device));
      const [first] = holdersOf(view, device), turns = first === device ? "" : element("small", {}, ` in turn with ${first + 1}`);
      const item = element("li", {}, named(device), turns, element("span", { className: "bars" },
        element("small", {}, "busy"), shareBar(view.metrics.period ? busy / view.metrics.period : 0), element("small", {}, "memory"), share));
      const only = (chosen) => all("#boxes > g").forEach((box) => box.classList.toggle("dim", chosen && !box.dataset.devices.includes(` ${first} `)));
      item.addEventListener("pointerenter", () => only(true));
      item.addEventListener("pointerleave", () => only(false));
      return item;
    });
    one("#legend").replaceChildren(...items);
  }

  function sorting(table) {
    const heads = [...table.tHead.rows[0].cells];
    const key = (row, column) => row.cells[column].dataset.sort === undefined ? row.cells[column].textContent : Number(row.cells[column].dataset.sort);
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    heads.forEach((head, column) => {
      const button = element("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...table.tBodies[0].rows].sort((a, b) => compare(key(a, column), key(b, column)));
        table.tBodies[0].append(...(down ? rows.reverse() : rows));
      });
    });
  }

  all(".sortable").forEach(sorting);
  painters.push((view) => {
    const cuts = cutRows(view);
    fill(one("#cut-table"), cuts);
    fill(one("#device-table"), deviceRows(view));
    fill(one("#lane-table"), laneRows(view));
    legend(view);
    one("#lane-table").closest("section").hidden = !view.lanes.length;
    one("#cut-count").textContent = cuts.length ? `${many(cuts.length, "tensor")} that ${cuts.length === 1 ? "goes" : "go"} from one device to another, as a table` : "Nothing goes from one device to another.";
  });
})();
