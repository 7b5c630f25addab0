// Which distribution is shown: chosen in the front, in the table of targets or in the list.
(() => {
  const select = one("#view"), metrics = one("#metrics"), unit = metrics.dataset.unit, points = all(".front .point");

  function words({ metrics: of, busy }) {
    return `period ${duration(of.period)}, latency ${duration(of.latency)}, ${many(busy.length, "device")}`;
  }

  function sentence(view) {
    const of = view.metrics, parts = [many(view.busy.length, "device")];
    if (of.period) parts.push(`a ${unit} every ${duration(of.period)} (${Number((1 / of.period).toPrecision(3)).toLocaleString("en")} a second)`);
    parts.push(`latency ${duration(of.latency)}`);
    if (of.step) parts.push(`a step in ${duration(of.step)}`);
    if (of.energy) parts.push(`${formatJoules(of.energy)} a ${unit}`);
    parts.push(`fullest memory ${percent(of.share)}`, `${formatBytes(of.moved)} moved`);
    return `${parts.join(" · ")} · ${view.bottleneck} sets the period`;
  }

  function choose(number) {
    const view = data.views[number];
    select.value = number;
    metrics.textContent = sentence(view);
    all("tr[data-view]").forEach((row) => row.classList.toggle("shown", row.dataset.view === String(number)));
    const chosen = points.filter((point) => point.dataset.view === String(number));
    points.forEach((point) => {
      point.setAttribute("aria-checked", chosen.includes(point));
      point.setAttribute("tabindex", (chosen[0] ?? points[0]) === point ? 0 : -1);
    });
    painters.forEach((paint) => paint(view));
  }

  function listing() {
    const best = new Map();
    all(".targets tr[data-view]").forEach((row) => best.set(row.dataset.view, [...(best.get(row.dataset.view) ?? []), row.cells[0].textContent]));
    select.append(...data.views.map((view, number) => {
      const targets = best.get(String(number));
      return element("option", { value: number }, `${words(view)}${targets ? ` (best for ${targets.join(", ")})` : ""}`);
    }));
    select.addEventListener("change", () => choose(Number(select.value)));
    all("[data-show]").forEach((each) => each.addEventListener("click", () => choose(Number(each.dataset.show))));
  }

  function walking() {
    const across = [...points].sort((a, b) => a.cx.baseVal.value - b.cx.baseVal.value);
    across.forEach((point, index) => {
      point.addEventListener("click", () => { choose(Number(point.dataset.view)); point.focus(); });
      point.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, " ": 0, Enter: 0 }[event.key], next = across[index + step];
        if (!next) return;
        event.preventDefault();
        choose(Number(next.dataset.view));
        next.focus();
      });
    });
  }

  function themeButton() {
    const button = one("#theme");
    let dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const label = () => { button.textContent = dark ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      dark = !dark;
      document.documentElement.style.colorScheme = dark ? "dark" : "light";
      label();
    });
    button.hidden = false;
    label();
  }

  all(".scripted").forEach((each) => { each.hidden = false; });
  themeButton();
  listing();
  walking();
  if (data.views.length) choose(0);
})();
