"use strict";
/* The translation page: greedy decoding with the exported graphs, and its attention. */

const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const { settings } = data;
const PAD = 0, SOS = 1, EOS = 2, CANDIDATES = 5;

/* Network */

function readWeights() {
  const text = atob($("weights").textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  $("weights").remove();
  return new Float32Array(bytes.buffer);
}

const weights = readWeights();
const encoder = onnx.prepareGraph(data.encoder, weights);
const step = onnx.prepareGraph(data.step, weights);
const sourceTokenizer = makeTokenizer(data.source), targetTokenizer = makeTokenizer(data.target);

const FEATURE = /^ ?⟨[^⟨⟩ ]+⟩$/u;  // of an inflected form; never copied

/* The source of an input: TEXT<TAB>FEATURES of a network with features is the text and its features. */
function withFeatures(input) {
  if (!settings.reads_features) return input;
  const [text, features = ""] = input.split("\t");
  const all = features.replace(/\p{White_Space}/gu, "").match(/[()]|[^;,()]+/gu) ?? [];
  const depths = all.reduce((ends, each) => [...ends, ends.at(-1) + (each === "(") - (each === ")")], [0]);
  if (Math.min(...depths) < 0 || depths.at(-1)) throw new Error("A bracket of the features has no counterpart.");
  return [text, ...all.map(each => `⟨${each}⟩`)].join(" ");
}

/* Reads a sentence: its tokens as the network reads them, and what the reader should know.
   Throws an error with a message for the reader if the sentence cannot be read. */
function read(sentence) {
  const all = sourceTokenizer.encode(withFeatures(sentence));
  const foreign = sourceTokenizer.isClosed && all.find(({ isKnown }) => !isKnown);
  if (foreign) throw new Error(`“${foreign.token}” is not in the vocabulary. Use only ${sourceTokenizer.pieces.join(" ")}, separated by spaces.`);
  if (!all.length) throw new Error("The network can read none of these tokens.");
  const most = (settings.max_positions ?? Infinity) - settings.source_eos;
  if (Math.min(all.length, settings.max_source_tokens ?? Infinity) > most) throw new Error(`The network reads at most ${most} tokens.`);
  const tokens = all.slice(0, settings.max_source_tokens ?? undefined);
  const notes = [];
  if (tokens.length < all.length) notes.push(`Only the first ${tokens.length} tokens are read.`);
  // A source token outside the target vocabulary has an id of its own, from V on, in a network that copies
  const copied = settings.copies_source ? [...new Set(all.map(({ token }) => token))].filter(token => targetTokenizer.idOf(token) === undefined && !FEATURE.test(token)) : [];
  const copyIds = tokens.map(({ token }) => FEATURE.test(token) ? PAD : targetTokenizer.idOf(token) ?? targetTokenizer.size + copied.indexOf(token));
  const end = settings.source_eos ? [EOS] : [];
  return {
    tokens: [...tokens, ...end.map(() => ({ token: "<eos>", isKnown: true }))],
    ids: [...tokens.map(({ id }) => id), ...end],
    copyIds: [...copyIds, ...end],
    copied,
    notes,
  };
}

/* Decodes greedily; yields { id, label, weights, candidates } for each token, <eos> included. */
function* decode({ ids, copyIds, copied }) {
  const row = values => onnx.tensor([1, values.length], Int32Array.from(values));
  const [memory, mask, keys, ...first] = onnx.runGraph(encoder, [row(ids)]);
  const fixed = { memory, mask, keys, copy_ids: row(copyIds) };
  const names = step.inputs.filter(name => name !== "token" && !(name in fixed));
  const unknown = targetTokenizer.idOf(UNKNOWN);
  let state = first, id = SOS;
  for (let n = 0; id !== EOS; n++) {
    const inputs = { ...fixed, token: row([id]) };
    names.forEach((name, k) => { inputs[name] = state[k]; });
    const [logs, attention, ...next] = onnx.runGraph(step, step.inputs.map(name => inputs[name]));
    state = next;
    if (settings.copies_source && unknown !== undefined) logs.data[unknown] = -Infinity;  // it copies unknown words instead
    const best = largest(logs.data.subarray(EOS), CANDIDATES).map(place => EOS + place);  // neither PAD nor SOS
    id = n === settings.max_length ? EOS : best[0];
    yield {
      id,
      label: targetTokenizer.label(id, copied),
      weights: attention.data,
      candidates: best.map(other => ({ id: other, label: targetTokenizer.label(other, copied), probability: Math.exp(logs.data[other]) })),
    };
  }
}

/* The places of the largest values, the first place of equal values first. */
function largest(values, count) {
  const best = [];
  for (let place = 0; place < values.length; place++) {
    if (best.length === count && !(values[place] > values[best.at(-1)])) continue;
    let rank = best.length;
    while (rank && values[place] > values[best[rank - 1]]) rank--;
    best.splice(rank, 0, place);
    best.length = Math.min(best.length, count);
  }
  return best;
}

function textOf(steps, copied) {
  return targetTokenizer.decode(steps.map(({ id }) => id), copied);
}

/* Page */

const state = { source: null, map: null, decoding: null, steps: [], finished: false, selected: -1, playing: 0 };

const percent = value => `${(100 * value).toFixed(value > 0 && value < 0.0995 ? 1 : 0)} %`;
const isUnknown = ({ id }) => id !== undefined && id === targetTokenizer.idOf(UNKNOWN);

function start(sentence) {
  let source;
  try {
    source = read(sentence);
  } catch (error) {
    $("message").textContent = error.message;
    return;
  }
  $("message").textContent = source.notes.join(" ");
  Object.assign(state, { source, decoding: decode(source), steps: [], finished: false, selected: -1 });
  $("status").textContent = "";
  $("text").textContent = "";
  $("result").hidden = false;
  $("source").replaceChildren(...source.tokens.map(({ token, isKnown }) => {
    const shown = label(token, "token");
    if (token === "<eos>") shown.classList.add("end");
    if (!isKnown) {
      shown.classList.add("unknown");
      shown.title = "Not in the vocabulary";
      shown.append(element("small", { textContent: "unknown" }));
    }
    return shown;
  }));
  $("output").replaceChildren();
  $("frame").replaceChildren();
  $("choices").replaceChildren();
  $("readout").textContent = "";
  document.querySelector(".details").classList.remove("flat");
  resize();
  play();
}

function resize() {
  if (!state.source) return;
  $("frame").style.setProperty("--card-width", `${$("frame").clientWidth}px`);
}

/* Computes the next token and adds it to the page. */
function advance() {
  const { value, done } = state.decoding.next();
  if (done || value.id === EOS) state.finished = true;
  if (done) return;
  const place = state.steps.push(value) - 1;
  const token = element("button", { type: "button", className: "token", textContent: value.label, tabIndex: -1 });
  if (value.id === EOS) token.classList.add("end");
  if (isUnknown(value)) token.classList.add("unknown");
  token.addEventListener("click", () => { pause(); select(place); });
  $("output").append(token);
  drawMap();
  if (!state.finished) return;
  const text = textOf(state.steps, state.source.copied);
  if (text !== state.steps.filter(({ id }) => id !== EOS).map(({ label }) => label).join(" ")) $("text").textContent = text;
  $("status").textContent = `Output: ${text}`;
  if (state.steps.length > settings.max_length) $("message").textContent = `Stopped after ${settings.max_length} tokens, the limit of this network.`;
}

/* Draws the attention of all steps so far. */
function drawMap() {
  state.map = heatMap({
    rows: state.steps.map(({ label }) => label),
    columns: state.source.tokens.map(({ token }) => token),
    weights: Float64Array.from(state.steps.flatMap(({ weights }) => [...weights])),
    onPoint: showWeights,
    onSelect: place => { pause(); select(place); },
    onLeave: () => showWeights(state.selected),
  });
  $("frame").replaceChildren(state.map.element);
}

/* Shows the weights of a step, or of one source token, in the texts and in the map. */
function showWeights(place, column = null) {
  const row = state.steps[place].weights, sources = state.source.tokens.map(({ token }) => token);
  highlight([...$("source").children], row);
  state.map.showRow(place);
  $("readout").replaceChildren(...readout(state.steps[place].label, sources, row, column));
}

/* Shows a step: its place in the output, its weights and the candidates. */
function select(place) {
  state.selected = place;
  const { candidates, id } = state.steps[place];
  [...$("output").children].forEach((token, k) => {
    token.classList.toggle("now", k === place);
    token.classList.toggle("later", k > place);
    token.tabIndex = k === place ? 0 : -1;
    token.setAttribute("aria-current", k === place ? "step" : "false");
  });
  state.map.coverFrom(place + 1);
  showWeights(place);
  document.querySelector(".details").classList.toggle("flat", state.steps.every(({ weights }) => weights.every(weight => weight === 0)));
  $("choices").replaceChildren(...candidates.map(candidate => {
    const bar = element("i", { ariaHidden: "true" });
    bar.style.setProperty("--p", candidate.probability.toFixed(4));
    const item = element("li", {}, element("bdi", { textContent: candidate.label }), element("span", { textContent: percent(candidate.probability) }), bar);
    item.classList.toggle("chosen", candidate.id === id);
    return item;
  }));
  showControls();
}

function showControls() {
  const { steps, selected, finished, playing } = state, atEnd = finished && selected === steps.length - 1;
  $("back").disabled = selected <= 0;
  $("forward").disabled = atEnd;
  $("step").max = Math.max(steps.length, 1);
  $("step").value = selected + 1;
  $("step").setAttribute("aria-valuetext", steps[selected] ? `${selected + 1}: ${steps[selected].label}` : "none");
  $("position").textContent = finished ? `${selected + 1} of ${steps.length}` : `${selected + 1}`;
  $("play").textContent = playing ? "❚❚" : "▶";
  $("play").setAttribute("aria-label", playing ? "Pause" : atEnd ? "Play again" : "Play");
}

/* Goes to the next step; computes it if it is new. Returns whether there was one. */
function forward() {
  if (state.selected + 1 === state.steps.length) {
    if (state.finished) return false;
    advance();
  }
  if (state.selected + 1 >= state.steps.length) return false;
  select(state.selected + 1);
  return true;
}

function pause() {
  clearTimeout(state.playing);
  state.playing = 0;
  showControls();
}

function play() {
  clearTimeout(state.playing);
  const next = () => {
    if (!forward()) return pause();
    const isLast = state.finished && state.selected === state.steps.length - 1;
    return isLast ? pause() : (state.playing = setTimeout(next, Number($("speed").value)));
  };
  state.playing = setTimeout(next, 0);
  showControls();
}

const typed = () => (settings.reads_features ? `${$("sentence").value}\t${$("features").value}` : $("sentence").value);
function type(sentence) {
  [$("sentence").value, $("features").value = ""] = settings.reads_features ? sentence.split("\t") : [sentence];
}

$("form").addEventListener("submit", event => {
  event.preventDefault();
  start(typed());
});
$("sentence").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  start(typed());
});
$("play").addEventListener("click", () => {
  if (state.playing) return pause();
  if (state.finished && state.selected === state.steps.length - 1) state.selected = -1;
  return play();
});
$("back").addEventListener("click", () => { pause(); select(state.selected - 1); });
$("forward").addEventListener("click", () => { pause(); forward(); });
$("step").addEventListener("input", () => { pause(); select(Number($("step").value) - 1); });
$("output").addEventListener("keydown", event => {
  const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  const place = { Home: 0, End: state.steps.length - 1 }[event.key] ?? state.selected + (moves[event.key] ?? NaN);
  if (!(place >= 0 && place < state.steps.length)) return;
  event.preventDefault();
  pause();
  select(place);
  $("output").children[place].focus();
});
addEventListener("resize", resize);

$("examples").append(...data.examples.map(sentence => {
  const button = element("button", { type: "button", textContent: sentence, dir: "auto" });
  button.addEventListener("click", () => {
    type(sentence);
    start(typed());
  });
  return button;
}));
if (matchMedia("(prefers-reduced-motion: reduce)").matches) $("speed").value = "0";
$("features").hidden = document.querySelector("label[for=features]").hidden = !settings.reads_features;
type(data.examples.at(-1) ?? "");
