// Decodes the input by every selected model while the visitor types.
//
// The token of a protected server is in the part of the address after "#", which browsers do not send.
"use strict";

(() => {
  const DELAY_MS = 150; // pause in typing after which a request is sent
  const CELL = 26; // width and height of a cell of a saved map in pixels
  const SHOWN = 3; // hypotheses that are shown, if the beam has as many
  const LETTER = 8; // approximate width of a letter of a label in pixels
  const NAMES = { weights: "attention weights", gradient: "gradients", integrated_gradients: "integrated gradients", erasure: "erasure" };
  const [form, source, features, beam, intervention, map, models, status, cards] = [
    "form", "source", "features", "beam", "intervention", "map", "models", "status", "cards",
  ].map((id) => document.getElementById(id));
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  const shown = new Map(); // card of each model, by its name

  /** Call the server; throw an error with its explanation if it refuses. */
  async function call(path, body, signal) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (body) headers["Content-Type"] = "application/json";
    const options = { headers, signal, method: body ? "POST" : "GET", body: body && JSON.stringify(body) };
    const response = await fetch(path, options);
    if (response.ok) return response.json();
    const { detail } = await response.json().catch(() => ({ detail: response.statusText }));
    throw new Error(detail);
  }

  // Cards: one per model, with its own request, so that a fast model does not wait for a slow one

  function makeCard(model) {
    const card = { model, controller: null, timer: null, prediction: null };
    card.facts = element("small");
    card.output = element("p", { className: "output" });
    card.output.dir = "auto";
    card.output.setAttribute("aria-live", "polite");
    card.others = element("p", { className: "others" });
    card.others.dir = "auto";
    card.error = element("p", { className: "error", role: "alert" });
    card.prefix = element("input", { type: "text", autocomplete: "off", spellcheck: false, dir: "auto" });
    card.prefix.addEventListener("input", () => schedule(card));
    const edit = element("button", { type: "button", textContent: "Edit output" });
    edit.addEventListener("click", () => {
      card.prefix.value = card.prediction?.text ?? "";
      card.prefix.focus();
    });
    card.frame = element("div", { className: "frame" });
    card.readout = element("p", { className: "readout" });
    card.save = element("div", { className: "save", hidden: true },
      ...["SVG", "PNG"].map((type) => {
        const button = element("button", { type: "button", textContent: `Save ${type}` });
        button.addEventListener("click", () => save(card, type));
        return button;
      }));
    card.article = element("article", { className: "card" },
      element("header", {}, element("h2", { textContent: model.name }), card.facts),
      card.output, card.others, card.error,
      element("div", { className: "start" },
        element("label", {}, "The output starts with", card.prefix), edit),
      card.frame, card.readout, card.save);
    card.article.setAttribute("aria-label", model.name);
    return card;
  }

  function schedule(card) {
    clearTimeout(card.timer);
    card.timer = setTimeout(() => update(card), DELAY_MS);
  }

  async function update(card) {
    card.controller?.abort();
    const typed = source.value.trim();
    const text = typed && card.model.reads_features && !typed.includes("\t") ? `${typed}\t${features.value}` : typed;
    card.article.hidden = !isSelected(card);
    if (!text || card.article.hidden) {
      show(card, []);
      return;
    }
    card.controller = new AbortController();
    card.article.classList.add("busy");
    const request = {
      sentences: [text], models: [card.model.name], prefixes: [card.prefix.value],
      beam_size: beam.valueAsNumber || null, nbest: map.value === "weights" ? Math.min(beam.valueAsNumber || 1, SHOWN) : 1, intervention: intervention.value || null,
      map: map.value,
    };
    try {
      const answer = await call("api/translate", request, card.controller.signal);
      show(card, answer.results[0].predictions[0]);
    } catch (error) {
      if (error.name === "AbortError") return; // a newer request replaced this one
      show(card, [], error.message);
    }
  }

  function isSelected(card) {
    return models.querySelector(`input[value="${CSS.escape(card.model.name)}"]`).checked;
  }

  /** Show the best hypothesis with its map, and the others with their probabilities. */
  function show(card, [prediction = null, ...others], error = "") {
    card.prediction = prediction;
    card.error.textContent = error;
    card.article.classList.remove("busy");
    card.output.textContent = prediction?.text ?? "";
    card.facts.textContent = [card.model.mechanism, prediction && probability(prediction)].filter(Boolean).join(" · ");
    card.others.replaceChildren(...others.flatMap((other) => [element("bdi", { textContent: other.text }), ` (${probability(other)}) `]));
    const hasMap = prediction !== null && prediction.attention !== null;
    const empty = prediction === null ? "" : "This mechanism has no attention weights.";
    card.frame.replaceChildren(hasMap ? draw(card) : empty);
    card.readout.replaceChildren();
    card.readout.hidden = card.save.hidden = !hasMap;
  }

  function probability({ p, p_beam: share }) {
    return `p = ${p.toPrecision(3)}${share === null ? "" : `, ${(100 * share).toFixed(0)} % of the beam`}`;
  }

  // Maps

  function draw(card) {
    const { tokens, source_tokens: columns, attention, probabilities } = card.prediction;
    const weights = Float64Array.from(attention.flat());
    const show = (row, column = null) => {
      map.showRow(row);
      const shown = weights.subarray(row * columns.length, (row + 1) * columns.length);
      card.readout.replaceChildren(...(row < 0 ? [] : readout(tokens[row], columns, shown, column)));
    };
    const map = heatMap({
      rows: tokens, columns, weights, probabilities, onPoint: show, onSelect: show, onLeave: () => show(-1),
    });
    return map.element;
  }

  /** Return a map with its labels as one picture. */
  function picture({ tokens, source_tokens: columns, attention }) {
    const [left, top] = [space(tokens), space(columns)];
    const [T, S] = [tokens.length, columns.length];
    const [width, height] = [left + CELL * (S + 1), top + CELL * T];
    const svg = svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}`, style: "color: #08306b" });
    svg.append(svgElement("style", {}, "text { font: 13px sans-serif; fill: #1c1c1a } .border { stroke: #dedcd5; fill: none }"),
      svgElement("rect", { width: "100%", height: "100%", fill: "#ffffff" }),
      svgElement("g", { transform: `translate(${left} ${top}) scale(${CELL})` }, ...shades(attention.flat(), T, S)),
      svgElement("rect", { class: "border", x: left, y: top, width: CELL * S, height: CELL * T }));
    columns.forEach((column, s) => svg.append(svgElement("text",
      { transform: `translate(${left + CELL * (s + 0.65)} ${top - 6}) rotate(-55)` }, shorten(column))));
    tokens.forEach((row, t) => svg.append(svgElement("text",
      { x: left - 8, y: top + CELL * (t + 0.65), "text-anchor": "end" }, shorten(row))));
    return svg;
  }

  /** Return the space that the labels of rows or columns need, in pixels. */
  function space(labels) {
    return 16 + LETTER * Math.max(...labels.map((label) => [...shorten(label)].length));
  }

  function shorten(token) {
    const letters = [...visible(token)];
    return letters.length > 14 ? `${letters.slice(0, 13).join("")}…` : letters.join("");
  }

  // Saved pictures

  async function save(card, type) {
    const svg = picture(card.prediction);
    const text = new XMLSerializer().serializeToString(svg);
    let blob = new Blob([text], { type: "image/svg+xml" });
    if (type === "PNG") blob = await rasterise(text, svg.width.baseVal.value, svg.height.baseVal.value);
    const link = element("a", { href: URL.createObjectURL(blob), download: `attention-${card.model.name}.${type.toLowerCase()}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  async function rasterise(text, width, height) {
    const scale = 2; // for sharp pictures in slides
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    await image.decode();
    const canvas = element("canvas", { width: width * scale, height: height * scale });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  // Start

  async function start() {
    const descriptions = await call("api/models");
    for (const model of descriptions) {
      const box = element("input", { type: "checkbox", value: model.name, checked: true });
      models.append(element("label", {}, box, ` ${model.name}`));
      const card = makeCard(model);
      shown.set(model.name, card);
      cards.append(card.article);
      show(card, []);
    }
    beam.value = descriptions[0].beam_size;
    models.hidden = descriptions.length < 2;
    features.parentElement.hidden = !descriptions.some((model) => model.reads_features);
    for (const [value, textContent] of Object.entries(NAMES)) map.append(element("option", { value, textContent }));
    for (const kind of new Set(descriptions.flatMap((model) => model.interventions))) {
      intervention.append(element("option", { value: kind, textContent: kind }));
    }
  }

  source.addEventListener("input", () => {
    for (const card of shown.values()) card.prefix.value = "";
  });
  form.addEventListener("input", () => shown.forEach(schedule));
  form.addEventListener("submit", (event) => event.preventDefault());
  followCardWidth(cards);
  start().catch((error) => status.replaceChildren(error.message));
})();
