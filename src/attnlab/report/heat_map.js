// Heat maps of attention weights, and what the scripts of all pages share.
//
// Texts are only ever set as text, never as markup.
"use strict";

const SHADES = 32; // shades of a map; the readout gives the weight

function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

function svgElement(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

// Tokens

const SYMBOLS = { " ": "␣", "\n": "↵", "\t": "⇥" };
const INVISIBLE = /[\p{C}\p{Z}\p{DI}\u2800]/gu;
const SELECTORS = /[\u034f\u200c\u200d\p{VS}]/u; // of glyphs, beside a visible letter

const visibleTokens = new Map(); // cache of visible()

/** Show spaces as symbols, invisible characters as code points, and combining marks on a dotted circle. */
function visible(token) {
  if (!visibleTokens.has(token)) visibleTokens.set(token, makeVisible(token));
  return visibleTokens.get(token);
}

function makeVisible(token) {
  const seen = token.replace(/[ \n\t]/g, (blank) => SYMBOLS[blank]);
  const isWord = seen.replace(INVISIBLE, "") !== "";
  const shown = seen.replace(INVISIBLE, (letter) => isWord && SELECTORS.test(letter) ? letter : codePoint(letter));
  return shown === "" ? "∅" : /^\p{M}/u.test(shown) ? `◌${shown}` : shown;
}

function codePoint(letter) {
  return `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Return whether the first letter belongs to a right-to-left script. */
function isRightToLeft(text) {
  const [letter] = text.match(/\p{L}/u) ?? [""];
  return /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u.test(letter);
}

function label(token, className = "") {
  return element("span", { className, textContent: visible(token) });
}

/** Colour the elements of source tokens by their weights, an array or null. */
function highlight(labels, weights) {
  labels.forEach((label, column) => {
    const weight = weights === null ? 0 : weights[column];
    if (weight > 0) label.style.setProperty("--w", weight.toFixed(3));
    else if (label.hasAttribute("style")) label.removeAttribute("style");
    label.classList.toggle("strong", weight > 0.5);
  });
}

/** Return the nodes of the text `row ← column 0.97`: the weight of one column, or the three largest. */
function readout(row, columns, weights, column = null) {
  const largest = [...weights.keys()].sort((a, b) => weights[b] - weights[a] || a - b);
  const chosen = column === null ? largest.slice(0, 3).filter((index) => weights[index] > 0) : [column];
  const name = (token) => element("bdi", { textContent: visible(token) });
  return [name(row), " ← ", ...chosen.flatMap((index, number) =>
    [number ? ", " : "", name(columns[index]), ` ${weights[index].toFixed(2)}`])];
}

// Maps

/**
 * Draw weights as a map: a row for each output token, a column for each source token.
 *
 * `weights` holds all rows in one array, `probabilities` one number for each row (or null), and `gold` the [row, column] of
 * aligned tokens: see `HeatMap` in heat_map.py. The map calls `onPoint` and
 * `onSelect` with a row and a column (null for the label of the row), and `onLeave` when the pointer leaves it. The page
 * sets --card-width, the width that the map may take.
 */
function heatMap({ rows, columns, weights, probabilities = null, gold = [], onPoint, onSelect, onLeave }) {
  const [T, S] = [rows.length, columns.length];
  const [rowLabels, columnLabels] = [rows.map((token) => label(token)), columns.map((token) => label(token))];
  const svg = svgElement("svg", { viewBox: `0 0 ${S} ${T}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(...shades(weights, T, S), svgElement("path", { class: "lines", d: gridLines(T, S) }),
    svgElement("path", { class: "gold", d: squares(gold) }));
  const cover = svg.appendChild(svgElement("rect", { class: "cover", width: S, height: 0 }));
  const frame = svg.appendChild(svgElement("rect", { class: "row", width: S, height: 1, visibility: "hidden" }));
  const labels = element("div", { className: "rows" }, ...rowLabels);
  const map = element("div", { className: "map" },
    element("div", { className: "axis across", textContent: "source tokens" }),
    element("div", { className: "axis down", textContent: "output tokens" }),
    element("div", { className: "columns" }, ...columnLabels), labels, svg);
  if (probabilities) {
    const numbers = probabilities.map((p) => element("span", { textContent: p.toFixed(2) }));
    map.append(element("div", { className: "p", textContent: "p", title: "probability of the output token" }),
      element("div", { className: "probabilities" }, ...numbers));
  }
  map.dir = isRightToLeft(columns.join("")) ? "rtl" : "ltr";
  map.classList.toggle("flat", columns.every((token) => [...visible(token)].length <= 2));
  map.style.setProperty("--s", S);
  map.style.setProperty("--t", T);

  /** Return the [row, column] under the pointer; maps of right-to-left sources are mirrored. */
  function cell(event) {
    const box = svg.getBoundingClientRect();
    const across = Math.min(S - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * S)));
    const down = Math.min(T - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * T)));
    return [down, map.dir === "rtl" ? S - 1 - across : across];
  }

  labels.addEventListener("pointerover", (event) => {
    const row = rowLabels.indexOf(event.target);
    if (row >= 0) onPoint(row, null);
  });
  svg.addEventListener("pointermove", (event) => onPoint(...cell(event)));
  svg.addEventListener("click", (event) => onSelect(...cell(event)));
  map.addEventListener("pointerleave", onLeave);

  return {
    element: map,
    /** Mark a row and colour the labels of the columns by its weights; -1 marks none. */
    showRow(row) {
      rowLabels.forEach((label, number) => label.classList.toggle("now", number === row));
      frame.setAttribute("visibility", row < 0 ? "hidden" : "visible");
      frame.setAttribute("y", Math.max(0, row));
      highlight(columnLabels, row < 0 ? null : weights.subarray(row * S, (row + 1) * S));
    },
    /** Cover the rows from this one on. */
    coverFrom(row) {
      cover.setAttribute("y", row);
      cover.setAttribute("height", T - row);
    },
  };
}

/** Draw one path per shade, so that the number of elements does not grow with the number of cells. */
function shades(weights, T, S) {
  const paths = Array(SHADES + 1).fill("");
  for (let row = 0; row < T; row++) {
    for (let column = 0; column < S; column++) {
      const level = Math.round(weights[row * S + column] * SHADES);
      if (level > 0) paths[level] += `M${column} ${row}h1v1h-1z`;
    }
  }
  return paths.flatMap((d, level) => d === "" ? [] :
    [svgElement("path", { d, fill: "currentColor", "fill-opacity": level / SHADES })]);
}

function gridLines(T, S) {
  const across = Array.from({ length: Math.max(0, T - 1) }, (_, row) => `M0 ${row + 1}h${S}`);
  const down = Array.from({ length: Math.max(0, S - 1) }, (_, column) => `M${column + 1} 0v${T}`);
  return [...across, ...down].join("");
}

function squares(links) {
  return links.map(([row, column]) => `M${column + 0.06} ${row + 0.06}h.88v.88h-.88z`).join("");
}

/** Tell the maps in a grid of cards how wide a card is. */
function followCardWidth(grid) {
  new ResizeObserver(() => {
    grid.style.setProperty("--card-width", getComputedStyle(grid).gridTemplateColumns.split(" ")[0]);
  }).observe(grid);
}
