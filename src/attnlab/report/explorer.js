// The attention explorer: a list of sentences, and for the chosen one a card for each variant.
//
// Everything of the data is set as text, never as markup. A step is the number of an output token from 1; 0 is
// the whole map. All cards stand at one step; a card under the pointer may look at another row meanwhile.
"use strict";

(() => {
  const { variants, sentences, score: scoreName } = JSON.parse(document.getElementById("data").textContent);
  const LEVELS = 32; // shades of a map; the exact weight is told in words
  const PACE = 600; // ms a token, when playing
  const PAGE = 8; // sentences that Page Up and Page Down pass

  const [list, order, turn, cards, source, reference, slider, told, play] = [
    "sentences", "order", "reverse", "cards", "source", "reference", "step", "told", "play",
  ].map((id) => document.getElementById(id));

  let chosen = 0; // place of the chosen sentence in `sentences`
  let shown = []; // the cards of the chosen sentence
  let active = null; // the card whose weights light up the source line
  let step = 0;
  let timer = null;

  // Texts

  const MARKS = { " ": "␣", "\n": "↵", "\t": "⇥" };

  const known = new Map();

  /** A token as it can be seen: blanks have a sign, unseen characters their code point, lone marks a circle. */
  function visible(token) {
    if (!known.has(token)) known.set(token, makeVisible(token));
    return known.get(token);
  }

  function makeVisible(token) {
    const seen = token.replace(/[ \n\t]/g, (blank) => MARKS[blank])
      .replace(/[\p{Cc}\p{Cf}\p{Z}]/gu, (letter) => "\u200c\u200d".includes(letter) ? letter : codePoint(letter));
    return seen === "" ? "∅" : /^\p{M}/u.test(seen) ? `◌${seen}` : seen;
  }

  /** Whether the first letter is of a script written from right to left. */
  function isRightToLeft(text) {
    const [letter] = text.match(/\p{L}/u) ?? [""];
    return /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(letter);
  }

  function codePoint(letter) {
    return `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  }

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function drawn(name, attributes = {}) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  /** Token after token, with blanks between them, into a line. */
  function setTokens(line, tokens) {
    const spans = tokens.map((token) => label(token, "token"));
    line.replaceChildren(...spans.flatMap((span) => [span, " "]));
    return spans;
  }

  function label(token, className = "") {
    const made = document.createElement("span");
    made.className = className;
    made.textContent = visible(token);
    return made;
  }

  // The list

  const items = sentences.map((sentence, place) => {
    const facts = [`${sentence.tokens.length} tokens`];
    if (sentence.score !== null) facts.push(`${scoreName} ${sentence.score.toFixed(1)}`);
    if (sentence.disagreement !== null) facts.push(`disagreement ${sentence.disagreement.toFixed(1)}`);
    const item = element("li", { id: `sentence-${place}`, role: "option" },
      element("span", { textContent: sentence.source, dir: "auto" }),
      element("small", { textContent: facts.join(" · ") }));
    item.setAttribute("aria-selected", "false");
    item.dataset.place = place;
    return item;
  });

  const KEYS = {
    index: (place) => place,
    length: (place) => sentences[place].tokens.length,
    score: (place) => sentences[place].score ?? Infinity,
    disagreement: (place) => -(sentences[place].disagreement ?? 0), // the most first
  };

  function sort() {
    const key = KEYS[order.value];
    const sign = turn.getAttribute("aria-pressed") === "true" ? -1 : 1;
    const places = [...items.keys()].sort((a, b) => sign * (key(a) - key(b)) || a - b);
    list.replaceChildren(...places.map((place) => items[place]));
    list.scrollTop = 0;
  }

  function choose(place) {
    items[chosen].setAttribute("aria-selected", "false");
    chosen = place;
    items[chosen].setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", items[chosen].id);
    stop();
    const sentence = sentences[chosen];
    reference.textContent = sentence.reference ?? "";
    document.querySelectorAll(".reference").forEach((part) => { part.hidden = sentence.reference === null; });
    shown = sentence.outputs.map((output, column) => makeCard(sentence, output, variants[column]));
    cards.replaceChildren(...shown.map((card) => card.article));
    activate(shown.find((card) => card.weights !== null) ?? shown[0]);
    slider.max = Math.max(0, ...shown.map((card) => card.tokens.length));
    go(0);
  }

  /** Bring the chosen item into view inside the list, without moving the page. */
  function reveal() {
    const [outer, inner] = [list.getBoundingClientRect(), items[chosen].getBoundingClientRect()];
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
      article.append(element("p", { className: "none", textContent: "No output kept for this sentence." }));
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
    card.line.addEventListener("pointerover", (event) => number(event) && point(card, number(event)));
    card.line.addEventListener("focusin", (event) => number(event) && settle(card, number(event)));
    card.line.addEventListener("click", (event) => number(event) && settle(card, number(event)));
    card.line.addEventListener("pointerleave", () => look(card, step));
    card.line.addEventListener("keydown", (event) => walk(event, card));
    article.append(card.line);
    if (output.weights === null) {
      article.append(element("p", { className: "none", textContent: "No weights: this mechanism attends to nothing." }));
      return card;
    }
    card.gold = output.alignment ?? [];
    card.weights = Uint8Array.from(atob(output.weights), (byte) => byte.charCodeAt(0));
    card.read = element("p", { className: "read" });
    article.append(element("div", { className: "frame" }, makeMap(card)), card.read);
    return card;
  }

  function swatch(variant) {
    const made = drawn("svg", { class: "swatch", viewBox: "0 0 30 12", "aria-hidden": "true" });
    made.style.color = variant.colour;
    made.append(drawn("path", { d: "M0 6H30", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": variant.dash }),
      drawn("path", { d: variant.mark, fill: "currentColor", transform: "translate(15 6)" }));
    return made;
  }

  function makeMap(card) {
    const [T, S] = [card.tokens.length, card.source.length];
    card.columns = card.source.map((token) => label(token));
    card.rows = card.tokens.map((token) => label(token));
    card.svg = drawn("svg", { viewBox: `0 0 ${S} ${T}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    card.svg.append(...shades(card.weights, T, S), drawn("path", { class: "lines", d: lines(T, S) }),
      drawn("path", { class: "gold", d: frames(card.gold) }));
    card.veil = card.svg.appendChild(drawn("rect", { class: "veil", width: S, height: 0 }));
    card.frame = card.svg.appendChild(drawn("rect", { class: "row", width: S, height: 1, visibility: "hidden" }));
    const labels = element("div", { className: "rows" }, ...card.rows);
    labels.addEventListener("pointerover", (event) => {
      const row = card.rows.indexOf(event.target) + 1;
      if (row > 0) point(card, row);
    });
    card.map = element("div", { className: "map" },
      element("div", { className: "columns" }, ...card.columns),
      labels, card.svg);
    card.map.dir = isRightToLeft(card.source.join("")) ? "rtl" : "ltr";
    card.map.classList.toggle("flat", card.source.every((token) => [...visible(token)].length <= 2));
    card.map.style.setProperty("--s", S);
    card.map.style.setProperty("--t", T);
    card.svg.addEventListener("pointermove", (event) => point(card, ...cell(card, event)));
    card.svg.addEventListener("click", (event) => settle(card, cell(card, event)[0]));
    card.map.addEventListener("pointerleave", () => look(card, step));
    return card.map;
  }

  /** A path a shade: as few elements as there are shades, however many cells. */
  function shades(weights, T, S) {
    const paths = Array(LEVELS + 1).fill("");
    for (let row = 0; row < T; row++) {
      for (let column = 0; column < S; column++) {
        const level = Math.round((weights[row * S + column] / 255) * LEVELS);
        if (level > 0) paths[level] += `M${column} ${row}h1v1h-1z`;
      }
    }
    return paths.flatMap((d, level) => d === "" ? [] :
      [drawn("path", { d, fill: "currentColor", "fill-opacity": level / LEVELS })]);
  }

  function lines(T, S) {
    const across = Array.from({ length: T - 1 }, (_, row) => `M0 ${row + 1}h${S}`);
    const down = Array.from({ length: S - 1 }, (_, column) => `M${column + 1} 0v${T}`);
    return [...across, ...down].join("");
  }

  function frames(links) {
    return links.map(([row, column]) => `M${column + 0.06} ${row + 0.06}h.88v.88h-.88z`).join("");
  }

  /** The [step, column] under the pointer; a map of a right-to-left source is mirrored. */
  function cell(card, event) {
    const box = card.svg.getBoundingClientRect();
    const [T, S] = [card.tokens.length, card.source.length];
    const across = Math.min(S - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * S)));
    const down = Math.min(T - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * T)));
    return [down + 1, card.map.dir === "rtl" ? S - 1 - across : across];
  }

  // What is lit

  /** Show a card at a step, and in its readout the weight of one column, or the largest few. */
  function look(card, at, column = null) {
    const row = Math.min(at, card.tokens.length) - 1;
    card.spans.forEach((span, number) => span.classList.toggle("now", number === row));
    if (card.weights === null) return;
    const S = card.source.length;
    const weights = row < 0 ? null : card.weights.subarray(row * S, (row + 1) * S);
    card.rows.forEach((label, number) => label.classList.toggle("now", number === row));
    card.frame.setAttribute("visibility", row < 0 ? "hidden" : "visible");
    card.frame.setAttribute("y", Math.max(0, row));
    light(card.columns, weights);
    if (card === active) light([...source.children], weights);
    card.read.replaceChildren(...(weights === null ? [] : sentenceOf(card, row, weights, column)));
  }

  function light(labels, weights) {
    labels.forEach((label, column) => {
      const weight = weights === null ? 0 : weights[column] / 255;
      if (weight > 0) label.style.setProperty("--w", weight.toFixed(3));
      else if (label.hasAttribute("style")) label.removeAttribute("style");
      label.classList.toggle("strong", weight > 0.5);
    });
  }

  function sentenceOf(card, row, weights, column) {
    const largest = [...weights.keys()].sort((a, b) => weights[b] - weights[a] || a - b);
    const told = column === null ? largest.slice(0, 3).filter((place) => weights[place] > 0) : [column];
    const name = (token) => element("bdi", { textContent: visible(token) });
    return [name(card.tokens[row]), " ← ", ...told.flatMap((place, number) =>
      [number ? ", " : "", name(card.source[place]), ` ${(weights[place] / 255).toFixed(2)}`])];
  }

  /** Let the source line, and what is read aloud, follow this card. */
  function activate(card) {
    if (card === active) return;
    active?.read?.removeAttribute("aria-live");
    card.read?.setAttribute("aria-live", "polite");
    active = card;
    setTokens(source, card.source);
  }

  /** The pointer is over a row of a card. */
  function point(card, at, column = null) {
    activate(card);
    look(card, at, column);
  }

  /** A row of a card is chosen, by click, touch or focus. */
  function settle(card, at) {
    stop();
    activate(card);
    go(at);
  }

  // Steps

  function go(to) {
    step = Math.min(Math.max(to, 0), Number(slider.max));
    slider.value = step;
    told.textContent = step === 0 ? "all tokens" : `${step} of ${slider.max}`;
    for (const card of shown) {
      const last = Math.min(step, card.tokens.length);
      card.spans.forEach((span, row) => span.classList.toggle("later", step > 0 && row >= step));
      card.reachable?.setAttribute("tabindex", "-1"); // one token of a card is reached by the tab key
      card.reachable = card.spans[Math.max(0, last - 1)];
      card.reachable?.setAttribute("tabindex", "0");
      look(card, step);
      if (card.veil === undefined) continue;
      card.veil.setAttribute("y", last);
      card.veil.setAttribute("height", step === 0 ? 0 : card.tokens.length - last);
    }
  }

  function walk(event, card) {
    const rightToLeft = getComputedStyle(card.line).direction === "rtl";
    const moves = {
      ArrowRight: rightToLeft ? -1 : 1, ArrowLeft: rightToLeft ? 1 : -1, ArrowDown: 1, ArrowUp: -1,
      Home: -Infinity, End: Infinity,
    };
    if (event.key === "Escape") {
      go(0);
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
    if (step >= Number(slider.max)) go(0);
    timer = setInterval(() => {
      go(step + 1);
      if (step >= Number(slider.max)) stop();
    }, PACE);
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
  }

  // What the reader does

  order.addEventListener("change", sort);
  turn.addEventListener("click", () => {
    turn.setAttribute("aria-pressed", String(turn.getAttribute("aria-pressed") !== "true"));
    sort();
  });
  list.addEventListener("click", (event) => {
    const item = event.target.closest("li");
    if (item !== null) choose(Number(item.dataset.place));
  });
  list.addEventListener("keydown", (event) => {
    const places = [...list.children].map((item) => Number(item.dataset.place));
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    choose(places[Math.min(Math.max(places.indexOf(chosen) + moves[event.key], 0), places.length - 1)]);
    reveal();
  });
  slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
  document.getElementById("back").addEventListener("click", () => { stop(); go(step - 1); });
  document.getElementById("forward").addEventListener("click", () => { stop(); go(step + 1); });
  play.addEventListener("click", () => (timer === null ? start() : stop()));

  for (const option of [...order.options]) {
    const absent = { score: (s) => s.score, disagreement: (s) => s.disagreement }[option.value];
    if (absent !== undefined && sentences.every((sentence) => absent(sentence) === null)) option.remove();
  }
  document.getElementById("gold").hidden = !sentences.some((sentence) =>
    sentence.outputs.some((output) => output?.alignment?.length));
  new ResizeObserver(() => {
    cards.style.setProperty("--room", getComputedStyle(cards).gridTemplateColumns.split(" ")[0]);
  }).observe(cards);
  sort();
  choose(0);
})();
