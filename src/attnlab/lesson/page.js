"use strict";
/* The lesson page: trains the network in slices between two frames, and shows its loss, its score and its attention. */

const $ = id => document.getElementById(id);
const SIZES = { V: 50, E: 36, U: 32, H: 64, A: 64 };
const BATCH = 32, SHORTEST = 3, SLICE = 30; // pairs, tokens, milliseconds
const DRAW_EVERY = 10, SCORE_EVERY = 50, TESTED = 16; // steps, steps, sequences of each length
const SOLVED = 0.95;

/* The learning rate rises for 50 steps and falls from step 400 on. */
const learningRate = step => 5e-3 * Math.min(1, step / 50, Math.sqrt(400 / step));

/* A generator of numbers in [0, 1) that can be seeded: mulberry32. */
function generator(seed) {
  return () => {
    seed = (seed + 0x6D2B79F5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/* Two networks, with and without attention: each keeps its curve while the other one is trained. */
const state = { seed: 0, training: false, runs: {}, run: null, example: [], map: null };

function newRun(attention) {
  const random = generator(state.seed + 1);
  const network = lesson.makeNetwork({ ...SIZES, A: attention ? SIZES.A : 0 }, random);
  return { attention, network, random, losses: [], sum: 0, score: null, seconds: 0, solved: null };
}

function selectRun() {
  const attention = $("attention").checked, name = attention ? "with" : "without";
  state.run = state.runs[name] ??= newRun(attention);
  draw();
}

/* Training */

function trainFor(milliseconds) {
  const { run } = state, start = performance.now(), longest = Number($("longest").value);
  let now = start;
  do {
    const S = SHORTEST + Math.floor(run.random() * (longest - SHORTEST + 1)), step = run.network.steps + 1;
    run.sum += lesson.trainStep(run.network, S, BATCH, learningRate(step), run.random);
    if (step % DRAW_EVERY === 0) {
      run.losses.push([step, run.sum / DRAW_EVERY]);
      run.sum = 0;
    }
    if (step % SCORE_EVERY === 0) run.score = score(run, longest);
    now = performance.now();
    if (run.score?.share >= SOLVED) run.solved ??= run.seconds + (now - start) / 1000;
  } while (now < start + milliseconds);
  run.seconds += (now - start) / 1000;
}

function score({ network, random }, longest) {
  let exact = 0, count = 0;
  for (let S = SHORTEST; S <= longest; S++, count += TESTED) exact += lesson.countExact(network, S, TESTED, random);
  return { share: exact / count, count };
}

// Unlike timers, messages are not delayed in hidden tabs
const channel = new MessageChannel();
let drawn = 0;
channel.port1.onmessage = () => {
  if (!state.training) return;
  trainFor(SLICE);
  if (performance.now() - drawn > 150) draw();
  channel.port2.postMessage(null);
};

function setTraining(training) {
  const start = training && !state.training;
  state.training = training;
  $("train").textContent = training ? "Pause" : state.run.network.steps ? "Continue" : "Train";
  if (start) channel.port2.postMessage(null);
}

/* Drawing */

const percent = share => `${(100 * share).toFixed(share > 0.985 && share < 1 ? 1 : 0)} %`;

function draw() {
  const { run } = state, { steps } = run.network, last = run.losses.at(-1);
  $("parameters").textContent = run.network.weights.length.toLocaleString("en");
  $("steps").textContent = steps.toLocaleString("en");
  $("loss").textContent = last ? last[1].toFixed(3) : "–";
  $("exact").textContent = run.score ? percent(run.score.share) : "–";
  $("seconds").textContent = `${run.seconds.toFixed(0)} s`;
  $("longest-value").textContent = $("longest").value;
  $("length-value").textContent = $("length").value;
  const reached = run.solved === null ? "" : `${percent(SOLVED)} exact match reached after ${run.solved.toFixed(0)} s.`;
  if ($("status").textContent !== reached) $("status").textContent = reached;
  drawCurves();
  drawExample();
  drawn = performance.now();
}

/* The losses of both networks, over the steps; the highest loss is that of a uniform distribution, ln V. */
function drawCurves() {
  const runs = Object.values(state.runs), most = Math.max(200, ...runs.map(run => run.network.steps));
  const highest = Math.ceil(Math.log(SIZES.V)), [width, height, left, bottom] = [600, 260, 34, 34];
  const x = step => left + step / most * (width - left - 8), y = loss => 8 + (1 - Math.min(loss / highest, 1)) * (height - bottom - 8);
  const text = (content, at) => svgElement("text", at, content);
  const ticks = Array.from({ length: highest + 1 }, (_, loss) => [
    svgElement("path", { class: "grid", d: `M${left} ${y(loss)}H${width - 8}` }),
    text(String(loss), { x: left - 8, y: y(loss) + 5, "text-anchor": "end" }),
  ]).flat();
  const step = 10 ** Math.floor(Math.log10(most / 2)), every = most / step > 5 ? 2 * step : step;
  for (let at = 0; at <= most; at += every) ticks.push(text(String(at), { x: x(at), y: height - 14, "text-anchor": x(at) > width - 30 ? "end" : "middle" }));
  const curves = runs.filter(({ losses }) => losses.length).map(({ attention, losses }) => svgElement("path", {
    class: attention ? "curve" : "curve without",
    d: losses.map(([at, loss], k) => `${k ? "L" : "M"}${x(at).toFixed(1)} ${y(loss).toFixed(1)}`).join(""),
  }));
  $("curves").setAttribute("viewBox", `0 0 ${width} ${height}`);
  $("curves").replaceChildren(...ticks, ...curves);
}

function newExample() {
  const random = Math.random;
  state.example = Array.from({ length: Number($("length").value) }, () => 3 + Math.floor(random() * (SIZES.V - 3)));
}

/* Decodes the example with the current weights, and draws its attention. */
function drawExample() {
  const { run, example } = state, { tokens, weights } = lesson.decode(run.network, example);
  const labels = tokens.map(token => (token === EOS ? "<eos>" : String(token))), columns = example.map(String);
  const expected = [...columns].reverse().concat("<eos>");
  $("source").textContent = columns.join(" ");
  $("output").replaceChildren(...labels.map((name, i) => element("span", { textContent: name, className: name === expected[i] ? "" : "wrong" })));
  const exact = labels.length === expected.length && labels.every((name, i) => name === expected[i]);
  $("verdict").textContent = exact ? "correct" : "not the reverse";
  $("no-map").hidden = run.attention;
  $("frame").hidden = !run.attention;
  $("frame").style.setProperty("--card-width", `${$("frame").clientWidth}px`);
  const show = (row, column) => {
    map.showRow(row);
    $("readout").replaceChildren(...(row < 0 ? [] : readout(labels[row], columns, weights.subarray(row * columns.length, (row + 1) * columns.length), column)));
  };
  const map = heatMap({ rows: labels, columns, weights, onPoint: show, onSelect: show, onLeave: () => show(-1) });
  $("frame").replaceChildren(map.element);
  $("readout").replaceChildren();
}

/* Controls */

$("train").addEventListener("click", () => setTraining(!state.training));
$("restart").addEventListener("click", () => {
  setTraining(false);
  state.seed++;
  state.runs = {};
  selectRun();
  setTraining(false);
});
$("attention").addEventListener("change", () => { selectRun(); setTraining(state.training); });
$("longest").addEventListener("input", () => { state.run.solved = null; draw(); });
for (const [id, event] of [["length", "input"], ["another", "click"]]) $(id).addEventListener(event, () => { newExample(); draw(); });
addEventListener("resize", drawExample);
newExample();
selectRun();
