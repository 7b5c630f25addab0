"use strict";
const group = document.getElementById("boxes"), boxes = Array.from(group.children);
const WIDTH = Number(group.dataset.width), SIDE = Number(group.dataset.side), CHARACTER = 6.6;
const readout = document.getElementById("readout"), find = document.getElementById("find");
const invitation = readout.textContent;
const places = boxes.map(box => ({
  box, rect: box.querySelector("rect"), text: box.querySelector("text"), told: box.querySelector("title").textContent,
  x: Number(box.dataset.x), w: Number(box.dataset.w), depth: Number(box.dataset.d), name: box.dataset.n,
}));

// Show one box as wide as the graph, with what is inside it and, faded, what is around it.
function zoom(chosen) {
  for (const place of places) {
    const around = place.depth < chosen.depth && place.x <= chosen.x + 1e-9 && place.x + place.w >= chosen.x + chosen.w - 1e-9;
    const inside = place.depth >= chosen.depth && place.x >= chosen.x - 1e-9 && place.x + place.w <= chosen.x + chosen.w + 1e-9;
    place.box.style.display = around || inside ? "" : "none";
    place.box.classList.toggle("faded", around);
    if (!around && !inside) continue;
    const x = around ? SIDE : SIDE + (place.x - chosen.x) / chosen.w * WIDTH;
    const width = around ? WIDTH : place.w / chosen.w * WIDTH;
    place.rect.setAttribute("x", x);
    place.rect.setAttribute("width", Math.max(width - 0.4, 0.3));
    place.text.setAttribute("x", x + 4);
    const fits = Math.floor((width - 6) / CHARACTER);
    place.text.textContent = place.name.length <= fits ? place.name : fits > 2 ? place.name.slice(0, fits - 1) + "…" : "";
  }
}

function search() {
  const wanted = find.value.trim().toLowerCase();
  const hits = places.filter(place => {
    const hit = wanted !== "" && place.name.toLowerCase().includes(wanted);
    place.box.classList.toggle("found", hit);
    return hit;
  });
  // A frame inside another that was found is counted with it.
  hits.sort((a, b) => a.depth - b.depth);
  const outer = [];
  for (const hit of hits)
    if (!outer.some(o => hit.x >= o.x - 1e-9 && hit.x + hit.w <= o.x + o.w + 1e-9)) outer.push(hit);
  const share = outer.reduce((sum, hit) => sum + hit.w, 0);
  document.getElementById("found").textContent =
    wanted === "" ? "" : hits.length + (hits.length === 1 ? " frame, " : " frames, ") + (100 * share).toFixed(1) + " %";
}

for (const place of places) {
  place.box.addEventListener("click", () => zoom(place));
  place.box.addEventListener("mouseenter", () => { readout.textContent = place.told; });
  place.box.addEventListener("mouseleave", () => { readout.textContent = invitation; });
}
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && places.length) { find.value = ""; search(); zoom(places[0]); }
  if (event.key === "/" && event.target !== find) { event.preventDefault(); find.focus(); }
});
find.addEventListener("input", search);
