// Sorting, filtering, and values under the pointer. The page says everything without this.
(() => {
  "use strict";
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  function formatBytes(count) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(count) >= 1000 && unit < 4) { count /= 1024; unit += 1; }
    const digits = unit === 0 ? 0 : Math.abs(count) < 10 ? 2 : Math.abs(count) < 100 ? 1 : 0;
    return `${count.toFixed(digits)} ${units[unit]}`;
  }

  function themeButton() {
    const button = one("#theme"), root = document.documentElement;
    let dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const label = () => { button.textContent = dark ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      dark = !dark;
      root.style.colorScheme = dark ? "dark" : "light";
      label();
    });
    button.hidden = false;
    label();
  }

  function chart() {
    const source = one("#curve-data"), plot = one(".plot");
    if (!source || !plot) return;
    const { values, places, totals, peak } = JSON.parse(source.textContent);
    const cursor = one(".cursor", plot), legend = one(".legend"), caption = one("caption", legend);
    const rows = all("tbody tr", legend), foot = one("tfoot td", legend), last = totals.length - 1;
    let point = peak;

    function show(next, pinned) {
      point = Math.max(0, Math.min(last, next));
      const place = `${pinned ? "At" : "At the peak:"} ${places[point]}`;
      caption.textContent = place;
      rows.forEach((row, index) => {
        const bytes = values[index][point], share = totals[point] ? (100 * bytes) / totals[point] : 0;
        row.cells[1].textContent = formatBytes(bytes);
        row.cells[2].textContent = `${share.toFixed(1)} %`;
      });
      foot.textContent = formatBytes(totals[point]);
      cursor.hidden = !pinned;
      cursor.style.left = `${last ? (100 * point) / last : 0}%`;
      plot.setAttribute("aria-valuenow", point + 1);
      plot.setAttribute("aria-valuetext", `${place}, ${formatBytes(totals[point])} in use`);
    }

    plot.setAttribute("aria-label", `Moment of the run. ${plot.getAttribute("aria-label")}`);
    plot.setAttribute("role", "slider");
    plot.setAttribute("aria-valuemin", 1);
    plot.setAttribute("aria-valuemax", last + 1);
    plot.tabIndex = 0;
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      show(Math.round(((event.clientX - box.left) / box.width) * last), true);
    });
    plot.addEventListener("pointerleave", () => show(peak, false));
    plot.addEventListener("blur", () => show(peak, false));
    plot.addEventListener("keydown", (event) => {
      const page = Math.ceil(last / 20);
      const moves = { ArrowLeft: point - 1, ArrowDown: point - 1, ArrowRight: point + 1, ArrowUp: point + 1,
        PageUp: point + page, PageDown: point - page, Home: 0, End: last };
      if (event.key === "Escape") show(peak, false);
      if (!(event.key in moves)) return;
      event.preventDefault();
      show(moves[event.key], true);
    });
    show(peak, false);
  }

  function treemap() {
    const tiles = all(".tile"), readout = one(".treemap ~ .readout");
    if (!readout) return;
    const idle = "Point at a box, or focus one and use the arrow keys, to read it.";
    readout.hidden = false;
    readout.textContent = idle;
    tiles.forEach((tile, index) => {
      const text = tile.title;
      const show = () => { readout.textContent = text; };
      tile.tabIndex = index ? -1 : 0;
      tile.setAttribute("role", "img");
      tile.setAttribute("aria-label", text);
      tile.removeAttribute("title");
      tile.addEventListener("pointerenter", show);
      tile.addEventListener("pointerleave", () => { readout.textContent = idle; });
      tile.addEventListener("focus", show);
      tile.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        const next = step && tiles[index + step];
        if (!next) return;
        event.preventDefault();
        tile.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      });
    });
  }

  function sorting(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const key = (row, column) => {
      const cell = row.cells[column];
      return cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort);
    };
    const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((a, b) => compare(key(a, column), key(b, column)));
        body.append(...(down ? rows.reverse() : rows));
      });
    });
  }

  function filtering(table) {
    const input = one("#filter"), shown = one("#shown"), rows = [...table.tBodies[0].rows];
    const texts = rows.map((row) => row.textContent.toLowerCase());
    const apply = () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      rows.forEach((row, index) => {
        row.hidden = !wanted.every((word) => texts[index].includes(word));
        count += row.hidden ? 0 : 1;
      });
      shown.textContent = `${count} of ${rows.length} shown`;
    };
    input.addEventListener("input", apply);
    input.closest(".tools").hidden = false;
    apply();
  }

  function choosing() {
    const select = one("#quantity"), of = one("#of-gpu"), charts = all(".compared");
    if (select) {
      const show = () => charts.forEach((chart) => { chart.hidden = chart.dataset.quantity !== select.value; });
      select.addEventListener("change", show);
      show();
    }
    if (of) {
      of.addEventListener("change", () => {
        all(".speeds g").forEach((line) => line.classList.toggle("chosen", line.dataset.gpu === of.value));
        one("#gpu-chosen").textContent = of.selectedOptions[0].textContent;
        one(".speeds").append(one(".speeds .chosen"));
      });
    }
  }

  const table = one(".gpus");
  all(".scripted").forEach((element) => { element.hidden = false; });
  themeButton();
  chart();
  treemap();
  choosing();
  sorting(table);
  if (table.tBodies[0].rows.length > 1) filtering(table);
})();
