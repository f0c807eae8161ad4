"use strict";
// Draws every figure of the page from the JSON beside it, in the colours of the current theme.
(function () {
  const given = JSON.parse(document.getElementById("drawings").textContent);
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const choices = ["system", "light", "dark"];
  const config = {
    responsive: true,
    displaylogo: false,
    showSendToCloud: false,
    showEditInChartStudio: false,
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d"],
  };
  let choice = "system";
  let printing = false;

  function theme() {
    if (printing) return "light";
    return choice === "system" ? (system.matches ? "dark" : "light") : choice;
  }

  // A role is "@name" or "@name/alpha".
  function fill(node, colours) {
    if (typeof node === "string" && node[0] === "@") {
      const [role, alpha] = node.slice(1).split("/");
      const colour = colours[role];
      if (alpha === undefined) return colour;
      const part = (at) => parseInt(colour.slice(at, at + 2), 16);
      return "rgba(" + part(1) + "," + part(3) + "," + part(5) + "," + alpha + ")";
    }
    if (Array.isArray(node)) return node.map((item) => fill(item, colours));
    if (node !== null && typeof node === "object") {
      return Object.fromEntries(Object.entries(node).map(([key, item]) => [key, fill(item, colours)]));
    }
    return node;
  }

  function draw() {
    if (typeof Plotly === "undefined") {
      for (const place of document.querySelectorAll("[data-drawing]")) {
        place.textContent = "Not drawn: the page can't get plotly.js. Every number is in the tables.";
      }
      return;
    }
    const colours = given.themes[theme()];
    for (const place of document.querySelectorAll("[data-drawing]")) {
      const spec = fill(given.drawings[place.dataset.drawing], colours);
      Plotly.react(place, spec.data, spec.layout, config);
    }
  }

  function choose(next) {
    choice = next;
    const root = document.documentElement;
    if (choice === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", choice);
    document.getElementById("theme").textContent = "theme: " + choice;
    draw();
  }

  document.getElementById("theme").addEventListener("click", function () {
    choose(choices[(choices.indexOf(choice) + 1) % choices.length]);
  });
  system.addEventListener("change", draw);
  window.addEventListener("beforeprint", function () {
    printing = true;
    for (const folded of document.querySelectorAll("details")) folded.open = true;
    draw();
  });
  window.addEventListener("afterprint", function () {
    printing = false;
    draw();
  });
  choose("system");
})();
