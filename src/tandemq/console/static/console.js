// Keeps a page live without moving it under the reader: blocks that changed come by server-sent events and are put in
// place one by one. Texts, bars and notes change at once. Where links, rows or fields would come, go or change places, a
// block that is under the pointer or has the focus waits until they have left.
"use strict";

(() => {
  const body = document.body;
  const pause = document.getElementById("pause");
  const freshness = document.getElementById("freshness");
  const asOf = document.getElementById("as-of");
  const waiting = new Map();
  let source = null;
  let paused = false;
  let last = performance.now();

  const isBusy = (element) => element.matches(":hover:has(tbody, details, form)") || element.contains(document.activeElement);

  // What a person may be about to use: the same before and after means that nothing slips away under a click.
  const HANDLES = "a, button, input, select, textarea, details, summary, tr[id]";
  const handles = (root) => [...root.querySelectorAll(HANDLES)];
  const use = (item) => [item.nodeName, item.id, ...["href", "name", "value"].map((name) => item.getAttribute(name))].join(" ");
  const isUsedAlike = (old, fresh) => handles(old).map(use).join("\n") === handles(fresh).map(use).join("\n");

  const morph = (old, fresh) => {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) { old.replaceWith(fresh); return; }
    if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== fresh.data) old.data = fresh.data; return; }
    [...fresh.attributes].forEach(({ name, value }) => { if (old.getAttribute(name) !== value) old.setAttribute(name, value); });
    [...old.attributes].forEach(({ name }) => { if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name); });
    morphChildren(old, fresh);
  };
  const morphChildren = (old, fresh) => {
    const before = [...old.childNodes];
    const after = [...fresh.childNodes];
    after.forEach((node, n) => { if (n < before.length) morph(before[n], node); else old.append(node); });
    before.slice(after.length).forEach((node) => node.remove());
  };

  const put = (id, html) => {
    const element = document.getElementById(id);
    if (!element) return;
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    const alike = isUsedAlike(element, fresh.content);
    if (paused || (!alike && isBusy(element))) { waiting.set(id, html); return; }
    waiting.delete(id);
    const open = [...element.querySelectorAll("details[open][id]")].map((item) => item.id);
    const states = new Map([...element.querySelectorAll("tr[id] .status, .lane .status")].map((item, n) => [n, item.textContent]));
    const focused = handles(element).indexOf(document.activeElement);
    if (alike) morphChildren(element, fresh.content);
    else if (window.htmx) window.htmx.swap(element, html, { swapStyle: "innerHTML" });
    else element.innerHTML = html;
    if (focused >= 0 && handles(element)[focused] !== document.activeElement) handles(element)[focused].focus({ preventScroll: true });
    open.forEach((name) => { const item = document.getElementById(name); if (item) item.open = true; });
    [...element.querySelectorAll("tr[id] .status, .lane .status")].forEach((item, n) => {
      const was = states.get(n);
      if (was !== undefined && was.replace(/[\d.,]+/g, "") !== item.textContent.replace(/[\d.,]+/g, "")) item.classList.add("fresh");
    });
  };

  const settle = () => { if (!paused) [...waiting].forEach(([id, html]) => put(id, html)); };

  const connect = () => {
    if (!body.dataset.liveUrl || !window.EventSource) return;
    source = new EventSource(body.dataset.liveUrl);
    source.addEventListener("look", (event) => {
      const told = JSON.parse(event.data);
      last = performance.now();
      freshness.classList.remove("status", "unknown");
      if (!paused) asOf.textContent = told.at;
      Object.entries(told.blocks).forEach(([id, html]) => put(id, html));
    });
    source.addEventListener("trouble", () => { last = performance.now(); });
  };

  if (pause && document.querySelector("[data-live]")) {
    pause.hidden = false;
    pause.addEventListener("click", () => {
      paused = !paused;
      pause.textContent = paused ? "Resume" : "Pause";
      pause.setAttribute("aria-pressed", String(paused));
      settle();
    });
    connect();
    setInterval(() => {
      settle();
      if (performance.now() - last > 3000) freshness.classList.add("status", "unknown");
    }, 500);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { if (source) source.close(); source = null; }
      else if (!source) connect();
    });
  }

  // "/" goes to the search, as in many consoles.
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      document.getElementById("q").focus();
    }
  });

  // The theme is a preference of this browser.
  document.querySelectorAll("input[name=theme]").forEach((input) => input.addEventListener("change", () => {
    document.cookie = `theme=${input.value}; path=/; max-age=31536000; samesite=strict`;
    if (input.value) document.documentElement.dataset.theme = input.value;
    else delete document.documentElement.dataset.theme;
    drawAll();
  }));

  // Select all of a list.
  document.addEventListener("change", (event) => {
    const all = event.target.closest("input[data-selects]");
    if (all) {
      document.querySelectorAll(`input[name="${all.dataset.selects}"]`).forEach((box) => { box.checked = all.checked; });
    }
    const told = document.getElementById("selected");
    if (told) told.textContent = String(document.querySelectorAll("input[data-select]:checked").length);
  });

  // Charts.
  const charts = [];
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.className = "hidden";
    probe.style.color = `var(${name})`;
    body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const draw = async (place) => {
    const answer = await fetch(place.dataset.chart, { headers: { accept: "application/json" } });
    if (!answer.ok || !window.uPlot) return;
    const found = await answer.json();
    const data = [found.times, ...found.series.map((series) => series.values)];
    const known = charts.find((chart) => chart.place === place);
    if (known && known.theme === colour("--ink")) { known.plot.setData(data); return; }
    if (known) { known.plot.destroy(); charts.splice(charts.indexOf(known), 1); }
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px sans-serif" };
    const plot = new window.uPlot({
      width: place.clientWidth, height: 160, legend: { show: false }, cursor: { show: false },
      scales: {
        x: { range: (_, low, high) => [Math.min(low, high - 60), high] },
        y: { range: (_, low, high) => [0, Math.max(1, high * 1.1 || 1)] },
      },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toLocaleTimeString("en-GB")), space: 96, size: 28 }, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en")) }],
      series: [{}, ...found.series.map((series, n) => ({
        label: series.name, stroke: colour(n ? "--muted" : "--accent"), width: 1.75, dash: n ? [4, 3] : undefined, points: { show: false },
      }))],
    }, data, place);
    charts.push({ place, plot, theme: colour("--ink") });
  };
  const drawAll = () => document.querySelectorAll("[data-chart]").forEach((place) => { draw(place).catch(() => {}); });
  if (document.querySelector("[data-chart]")) {
    drawAll();
    setInterval(() => { if (!paused && !document.hidden) drawAll(); }, 2000);
    window.addEventListener("resize", () => charts.forEach(({ place, plot }) => plot.setSize({ width: place.clientWidth, height: 160 })));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  }
})();
