// Attention explorer: a list of sentences, and a card per variant for the selected sentence.
//
// A step is the 1-based index of an output token; 0 shows the
// whole map. All cards share one step; the card under the pointer temporarily shows another row.
"use strict";

(() => {
  const { variants, sentences, score: scoreName } = JSON.parse(document.getElementById("data").textContent);
  const STEP_MS = 600; // duration of a step during playback
  const PAGE = 8; // sentences per Page Up or Page Down

  const [list, order, confusion, reverse, cards, source, reference, slider, position, play] = [
    "sentences", "order", "confusion", "reverse", "cards", "source", "reference", "step", "position", "play",
  ].map((id) => document.getElementById(id));

  let selected = 0; // index of the selected sentence
  let shown = []; // cards of the selected sentence
  let active = null; // card whose weights highlight the source line
  let step = 0;
  let timer = null;

  /** Replace the content of a line by tokens separated by spaces; return their elements. */
  function setTokens(line, tokens) {
    const spans = tokens.map((token) => label(token, "token"));
    line.replaceChildren(...spans.flatMap((span) => [span, " "]));
    return spans;
  }

  // The list

  const items = sentences.map((sentence, index) => {
    const facts = [`${sentence.tokens.length} tokens`];
    if (sentence.score !== null) facts.push(`${scoreName} ${sentence.score.toFixed(1)}`);
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
  };

  function sort() {
    const key = KEYS[order.value];
    const sign = reverse.getAttribute("aria-pressed") === "true" ? -1 : 1;
    const shown = [...items.keys()].filter((index) =>
      confusion.value === "" || sentences[index].confusions.includes(confusion.value));
    const indices = shown.sort((a, b) => sign * (key(a) - key(b)) || a - b);
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
    const card = { article, tokens: [], source: sentence.tokens, spans: [], map: null, weights: null };
    if (output === null) {
      article.append(element("p", { className: "none", textContent: "No output was saved for this input." }));
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
    card.weights = Float64Array.from(atob(output.weights), (byte) => byte.charCodeAt(0) / 255);
    card.map = heatMap({
      rows: card.tokens, columns: card.source, weights: card.weights, probabilities: output.probabilities, gold: output.alignment ?? [],
      onPoint: (row, column) => hover(card, row + 1, column),
      onSelect: (row) => selectStep(card, row + 1),
      onLeave: () => showStep(card, step),
    });
    card.readout = element("p", { className: "readout" });
    article.append(element("div", { className: "frame" }, card.map.element), card.readout);
    return card;
  }

  function swatch(variant) {
    const node = svgElement("svg", { class: "swatch", viewBox: "0 0 30 12", "aria-hidden": "true" });
    node.style.color = variant.colour;
    node.append(svgElement("path", { d: "M0 6H30", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": variant.dash }),
      svgElement("path", { d: variant.mark, fill: "currentColor", transform: "translate(15 6)" }));
    return node;
  }

  // Highlighting

  /** Show a card at a step; the readout gives the weight of one column, or the three largest. */
  function showStep(card, at, column = null) {
    const row = Math.min(at, card.tokens.length) - 1;
    card.spans.forEach((span, number) => span.classList.toggle("now", number === row));
    if (card.weights === null) return;
    const S = card.source.length;
    const weights = row < 0 ? null : card.weights.subarray(row * S, (row + 1) * S);
    card.map.showRow(row);
    if (card === active) highlight([...source.children], weights);
    card.readout.replaceChildren(...(weights === null ? [] : readout(card.tokens[row], card.source, weights, column)));
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
      card.map?.coverFrom(step === 0 ? card.tokens.length : last);
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
  confusion.addEventListener("change", () => {
    sort();
    selectSentence(Number(list.firstElementChild.dataset.index));
  });
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

  const counts = new Map();
  for (const each of sentences.flatMap((sentence) => sentence.confusions)) counts.set(each, (counts.get(each) ?? 0) + 1);
  confusion.append(...[...counts].sort((a, b) => b[1] - a[1])
    .map(([value, count]) => element("option", { value, textContent: `${value} (${count})` })));
  confusion.parentElement.hidden = counts.size === 0;
  if (sentences.every((sentence) => sentence.score === null)) order.querySelector("[value=score]").remove();
  document.getElementById("gold").hidden = !sentences.some((sentence) =>
    sentence.outputs.some((output) => output?.alignment?.length));
  followCardWidth(cards);
  sort();
  selectSentence(0);
})();
