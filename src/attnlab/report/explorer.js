// Attention explorer: a list of sentences, and a card per variant for the selected sentence.
//
// Data is only ever set as text, never as markup. A step is the 1-based index of an output token; 0 shows the
// whole map. All cards share one step; the card under the pointer temporarily shows another row.
"use strict";

(() => {
  const { variants, sentences, score: scoreName } = JSON.parse(document.getElementById("data").textContent);
  const LEVELS = 32; // shades of a map; the readout gives the exact weight
  const STEP_MS = 600; // duration of a step during playback
  const PAGE = 8; // sentences per Page Up or Page Down

  const [list, order, reverse, cards, source, reference, slider, position, play] = [
    "sentences", "order", "reverse", "cards", "source", "reference", "step", "position", "play",
  ].map((id) => document.getElementById(id));

  let selected = 0; // index of the selected sentence
  let shown = []; // cards of the selected sentence
  let active = null; // card whose weights highlight the source line
  let step = 0;
  let timer = null;

  // Texts

  const SYMBOLS = { " ": "␣", "\n": "↵", "\t": "⇥" };

  const visibleTokens = new Map(); // cache of visible()

  /** Show spaces as symbols, invisible characters as code points, and combining marks on a dotted circle. */
  function visible(token) {
    if (!visibleTokens.has(token)) visibleTokens.set(token, makeVisible(token));
    return visibleTokens.get(token);
  }

  function makeVisible(token) {
    const seen = token.replace(/[ \n\t]/g, (blank) => SYMBOLS[blank])
      .replace(/[\p{Cc}\p{Cf}\p{Z}]/gu, (letter) => "\u200c\u200d".includes(letter) ? letter : codePoint(letter));
    return seen === "" ? "∅" : /^\p{M}/u.test(seen) ? `◌${seen}` : seen;
  }

  /** Return whether the first letter belongs to a right-to-left script. */
  function isRightToLeft(text) {
    const [letter] = text.match(/\p{L}/u) ?? [""];
    return /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(letter);
  }

  function codePoint(letter) {
    return `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  }

  function element(name, properties = {}, ...children) {
    const node = Object.assign(document.createElement(name), properties);
    node.append(...children);
    return node;
  }

  function svgElement(name, attributes = {}) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  /** Replace the content of a line by tokens separated by spaces; return their elements. */
  function setTokens(line, tokens) {
    const spans = tokens.map((token) => label(token, "token"));
    line.replaceChildren(...spans.flatMap((span) => [span, " "]));
    return spans;
  }

  function label(token, className = "") {
    const node = document.createElement("span");
    node.className = className;
    node.textContent = visible(token);
    return node;
  }

  // The list

  const items = sentences.map((sentence, index) => {
    const facts = [`${sentence.tokens.length} tokens`];
    if (sentence.score !== null) facts.push(`${scoreName} ${sentence.score.toFixed(1)}`);
    if (sentence.disagreement !== null) facts.push(`disagreement ${sentence.disagreement.toFixed(1)}`);
    const item = element("li", { id: `sentence-${index}`, role: "option" },
      element("span", { textContent: sentence.source, dir: "auto" }),
      element("small", { textContent: facts.join(" · ") }));
    item.setAttribute("aria-selected", "false");
    item.dataset.index = index;
    return item;
  });

  const KEYS = {
    index: (index) => index,
    length: (index) => sentences[index].tokens.length,
    score: (index) => sentences[index].score ?? Infinity,
    disagreement: (index) => -(sentences[index].disagreement ?? 0), // largest first
  };

  function sort() {
    const key = KEYS[order.value];
    const sign = reverse.getAttribute("aria-pressed") === "true" ? -1 : 1;
    const indices = [...items.keys()].sort((a, b) => sign * (key(a) - key(b)) || a - b);
    list.replaceChildren(...indices.map((index) => items[index]));
    list.scrollTop = 0;
  }

  function selectSentence(index) {
    items[selected].setAttribute("aria-selected", "false");
    selected = index;
    items[selected].setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", items[selected].id);
    stop();
    const sentence = sentences[selected];
    reference.textContent = sentence.reference ?? "";
    document.querySelectorAll(".reference").forEach((part) => { part.hidden = sentence.reference === null; });
    shown = sentence.outputs.map((output, column) => makeCard(sentence, output, variants[column]));
    cards.replaceChildren(...shown.map((card) => card.article));
    activate(shown.find((card) => card.weights !== null) ?? shown[0]);
    slider.max = Math.max(0, ...shown.map((card) => card.tokens.length));
    setStep(0);
  }

  /** Scroll the selected item into view within the list, without scrolling the page. */
  function scrollToSelected() {
    const [outer, inner] = [list.getBoundingClientRect(), items[selected].getBoundingClientRect()];
    if (inner.top < outer.top) list.scrollTop -= outer.top - inner.top;
    if (inner.bottom > outer.bottom) list.scrollTop += inner.bottom - outer.bottom;
  }

  // Cards

  function makeCard(sentence, output, variant) {
    const title = element("h3", { textContent: variant.name });
    const header = element("header", {}, swatch(variant), title);
    const article = element("article", { className: "card" }, header);
    article.setAttribute("aria-label", variant.name);
    const card = { article, tokens: [], source: sentence.tokens, spans: [], columns: [], rows: [], weights: null };
    if (output === null) {
      article.append(element("p", { className: "none", textContent: "No output was saved for this sentence." }));
      return card;
    }
    const facts = variant.facts ? [variant.facts] : [];
    if (output.exact) facts.push("✓ exact");
    if (output.score !== null) facts.push(`${scoreName} ${output.score.toFixed(1)}`);
    header.append(element("small", { textContent: facts.join(" · ") }));
    card.tokens = output.tokens;
    card.source = output.source ?? sentence.tokens;
    card.line = element("p", { className: "output tokens", dir: "auto" });
    card.spans = setTokens(card.line, output.tokens);
    card.spans.forEach((span) => { span.tabIndex = -1; });
    const number = (event) => card.spans.indexOf(event.target) + 1; // 0 between tokens
    card.line.addEventListener("pointerover", (event) => number(event) && hover(card, number(event)));
    card.line.addEventListener("focusin", (event) => number(event) && selectStep(card, number(event)));
    card.line.addEventListener("click", (event) => number(event) && selectStep(card, number(event)));
    card.line.addEventListener("pointerleave", () => showStep(card, step));
    card.line.addEventListener("keydown", (event) => moveFocus(event, card));
    article.append(card.line);
    if (output.weights === null) {
      article.append(element("p", { className: "none", textContent: "This mechanism has no attention weights." }));
      return card;
    }
    card.gold = output.alignment ?? [];
    card.weights = Uint8Array.from(atob(output.weights), (byte) => byte.charCodeAt(0));
    card.readout = element("p", { className: "readout" });
    article.append(element("div", { className: "frame" }, makeMap(card)), card.readout);
    return card;
  }

  function swatch(variant) {
    const node = svgElement("svg", { class: "swatch", viewBox: "0 0 30 12", "aria-hidden": "true" });
    node.style.color = variant.colour;
    node.append(svgElement("path", { d: "M0 6H30", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": variant.dash }),
      svgElement("path", { d: variant.mark, fill: "currentColor", transform: "translate(15 6)" }));
    return node;
  }

  function makeMap(card) {
    const [T, S] = [card.tokens.length, card.source.length];
    card.columns = card.source.map((token) => label(token));
    card.rows = card.tokens.map((token) => label(token));
    card.svg = svgElement("svg", { viewBox: `0 0 ${S} ${T}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    card.svg.append(...shades(card.weights, T, S), svgElement("path", { class: "lines", d: gridLines(T, S) }),
      svgElement("path", { class: "gold", d: frames(card.gold) }));
    card.mask = card.svg.appendChild(svgElement("rect", { class: "mask", width: S, height: 0 }));
    card.frame = card.svg.appendChild(svgElement("rect", { class: "row", width: S, height: 1, visibility: "hidden" }));
    const labels = element("div", { className: "rows" }, ...card.rows);
    labels.addEventListener("pointerover", (event) => {
      const row = card.rows.indexOf(event.target) + 1;
      if (row > 0) hover(card, row);
    });
    card.map = element("div", { className: "map" },
      element("div", { className: "columns" }, ...card.columns),
      labels, card.svg);
    card.map.dir = isRightToLeft(card.source.join("")) ? "rtl" : "ltr";
    card.map.classList.toggle("flat", card.source.every((token) => [...visible(token)].length <= 2));
    card.map.style.setProperty("--s", S);
    card.map.style.setProperty("--t", T);
    card.svg.addEventListener("pointermove", (event) => hover(card, ...cell(card, event)));
    card.svg.addEventListener("click", (event) => selectStep(card, cell(card, event)[0]));
    card.map.addEventListener("pointerleave", () => showStep(card, step));
    return card.map;
  }

  /** Draw one path per shade, so that the number of elements does not grow with the number of cells. */
  function shades(weights, T, S) {
    const paths = Array(LEVELS + 1).fill("");
    for (let row = 0; row < T; row++) {
      for (let column = 0; column < S; column++) {
        const level = Math.round((weights[row * S + column] / 255) * LEVELS);
        if (level > 0) paths[level] += `M${column} ${row}h1v1h-1z`;
      }
    }
    return paths.flatMap((d, level) => d === "" ? [] :
      [svgElement("path", { d, fill: "currentColor", "fill-opacity": level / LEVELS })]);
  }

  function gridLines(T, S) {
    const across = Array.from({ length: T - 1 }, (_, row) => `M0 ${row + 1}h${S}`);
    const down = Array.from({ length: S - 1 }, (_, column) => `M${column + 1} 0v${T}`);
    return [...across, ...down].join("");
  }

  function frames(links) {
    return links.map(([row, column]) => `M${column + 0.06} ${row + 0.06}h.88v.88h-.88z`).join("");
  }

  /** Return the [step, column] under the pointer; maps of right-to-left sources are mirrored. */
  function cell(card, event) {
    const box = card.svg.getBoundingClientRect();
    const [T, S] = [card.tokens.length, card.source.length];
    const across = Math.min(S - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * S)));
    const down = Math.min(T - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * T)));
    return [down + 1, card.map.dir === "rtl" ? S - 1 - across : across];
  }

  // Highlighting

  /** Show a card at a step; the readout gives the weight of one column, or the three largest. */
  function showStep(card, at, column = null) {
    const row = Math.min(at, card.tokens.length) - 1;
    card.spans.forEach((span, number) => span.classList.toggle("now", number === row));
    if (card.weights === null) return;
    const S = card.source.length;
    const weights = row < 0 ? null : card.weights.subarray(row * S, (row + 1) * S);
    card.rows.forEach((label, number) => label.classList.toggle("now", number === row));
    card.frame.setAttribute("visibility", row < 0 ? "hidden" : "visible");
    card.frame.setAttribute("y", Math.max(0, row));
    highlight(card.columns, weights);
    if (card === active) highlight([...source.children], weights);
    card.readout.replaceChildren(...(weights === null ? [] : readout(card, row, weights, column)));
  }

  function highlight(labels, weights) {
    labels.forEach((label, column) => {
      const weight = weights === null ? 0 : weights[column] / 255;
      if (weight > 0) label.style.setProperty("--w", weight.toFixed(3));
      else if (label.hasAttribute("style")) label.removeAttribute("style");
      label.classList.toggle("strong", weight > 0.5);
    });
  }

  function readout(card, row, weights, column) {
    const largest = [...weights.keys()].sort((a, b) => weights[b] - weights[a] || a - b);
    const columns = column === null ? largest.slice(0, 3).filter((index) => weights[index] > 0) : [column];
    const name = (token) => element("bdi", { textContent: visible(token) });
    return [name(card.tokens[row]), " ← ", ...columns.flatMap((index, number) =>
      [number ? ", " : "", name(card.source[index]), ` ${(weights[index] / 255).toFixed(2)}`])];
  }

  /** Make the source line and the screen-reader output follow this card. */
  function activate(card) {
    if (card === active) return;
    active?.readout?.removeAttribute("aria-live");
    card.readout?.setAttribute("aria-live", "polite");
    active = card;
    setTokens(source, card.source);
  }

  /** Handle the pointer over a row of a card. */
  function hover(card, at, column = null) {
    activate(card);
    showStep(card, at, column);
  }

  /** Select a row of a card, by click, touch or focus. */
  function selectStep(card, at) {
    stop();
    activate(card);
    setStep(at);
  }

  // Steps

  function setStep(to) {
    step = Math.min(Math.max(to, 0), Number(slider.max));
    slider.value = step;
    position.textContent = step === 0 ? "all tokens" : `${step} of ${slider.max}`;
    for (const card of shown) {
      const last = Math.min(step, card.tokens.length);
      card.spans.forEach((span, row) => span.classList.toggle("later", step > 0 && row >= step));
      card.reachable?.setAttribute("tabindex", "-1"); // one token per card is in the tab order
      card.reachable = card.spans[Math.max(0, last - 1)];
      card.reachable?.setAttribute("tabindex", "0");
      showStep(card, step);
      if (card.mask === undefined) continue;
      card.mask.setAttribute("y", last);
      card.mask.setAttribute("height", step === 0 ? 0 : card.tokens.length - last);
    }
  }

  function moveFocus(event, card) {
    const rightToLeft = getComputedStyle(card.line).direction === "rtl";
    const moves = {
      ArrowRight: rightToLeft ? -1 : 1, ArrowLeft: rightToLeft ? 1 : -1, ArrowDown: 1, ArrowUp: -1,
      Home: -Infinity, End: Infinity,
    };
    if (event.key === "Escape") {
      setStep(0);
    } else if (event.key in moves) {
      event.preventDefault();
      const row = card.spans.indexOf(event.target) + moves[event.key];
      card.spans[Math.min(Math.max(row, 0), card.spans.length - 1)].focus();
    }
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶";
    play.setAttribute("aria-label", "Play");
  }

  function start() {
    if (step >= Number(slider.max)) setStep(0);
    timer = setInterval(() => {
      setStep(step + 1);
      if (step >= Number(slider.max)) stop();
    }, STEP_MS);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
  }

  // Input events

  order.addEventListener("change", sort);
  reverse.addEventListener("click", () => {
    reverse.setAttribute("aria-pressed", String(reverse.getAttribute("aria-pressed") !== "true"));
    sort();
  });
  list.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item !== null) selectSentence(Number(item.dataset.index));
  });
  list.addEventListener("keydown", (event) => {
    const indices = [...list.children].map((item) => Number(item.dataset.index));
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    selectSentence(indices[Math.min(Math.max(indices.indexOf(selected) + moves[event.key], 0), indices.length - 1)]);
    scrollToSelected();
  });
  slider.addEventListener("input", () => { stop(); setStep(Number(slider.value)); });
  document.getElementById("back").addEventListener("click", () => { stop(); setStep(step - 1); });
  document.getElementById("forward").addEventListener("click", () => { stop(); setStep(step + 1); });
  play.addEventListener("click", () => (timer === null ? start() : stop()));

  for (const option of [...order.options]) {
    const absent = { score: (s) => s.score, disagreement: (s) => s.disagreement }[option.value];
    if (absent !== undefined && sentences.every((sentence) => absent(sentence) === null)) option.remove();
  }
  document.getElementById("gold").hidden = !sentences.some((sentence) =>
    sentence.outputs.some((output) => output?.alignment?.length));
  new ResizeObserver(() => {
    cards.style.setProperty("--card-width", getComputedStyle(cards).gridTemplateColumns.split(" ")[0]);
  }).observe(cards);
  sort();
  selectSentence(0);
})();
