"use strict";
/* A GRU encoder-decoder with additive attention: forward pass, backward pass and Adam, in plain JavaScript.

   The parameters have the names, shapes and initial distributions of attnlab's (encoder=recurrent with GRU cells,
   bridge=linear, attention=additive or none, decoder=bahdanau with GRU cells, readout=softmax). A batch has B pairs whose
   sources have the same length S, so that no masks are needed. Arrays are row-major; the first axis of activations is the
   position, so that a step is a contiguous block [B, ...].

   Sizes: V vocabulary, E embedding, U units of an encoder direction, D = 2 U memory, H decoder, A attention, T = S + 1. */

const SOS = 1, EOS = 2;

const lesson = (() => {
  /* Linear algebra. 64-bit numbers need no conversions in JavaScript, so they are faster than 32-bit ones. */

  /* c [M, N] += a [M, K] b [N, K]ᵀ, in tiles of 4 × 2 sums that stay in registers. */
  function addProduct(c, a, b, M, N, K) {
    let m = 0;
    for (; m + 3 < M; m += 4) {
      const row0 = m * K, row1 = row0 + K, row2 = row1 + K, row3 = row2 + K;
      let n = 0;
      for (; n + 1 < N; n += 2) {
        const column0 = n * K, column1 = column0 + K;
        let s00 = 0, s01 = 0, s10 = 0, s11 = 0, s20 = 0, s21 = 0, s30 = 0, s31 = 0;
        for (let k = 0; k < K; k++) {
          const x0 = a[row0 + k], x1 = a[row1 + k], x2 = a[row2 + k], x3 = a[row3 + k];
          const y0 = b[column0 + k], y1 = b[column1 + k];
          s00 += x0 * y0; s01 += x0 * y1;
          s10 += x1 * y0; s11 += x1 * y1;
          s20 += x2 * y0; s21 += x2 * y1;
          s30 += x3 * y0; s31 += x3 * y1;
        }
        const to = m * N + n;
        c[to] += s00; c[to + 1] += s01;
        c[to + N] += s10; c[to + N + 1] += s11;
        c[to + 2 * N] += s20; c[to + 2 * N + 1] += s21;
        c[to + 3 * N] += s30; c[to + 3 * N + 1] += s31;
      }
      if (n < N) addDots(c, a, b, m, m + 4, n, N, K);
    }
    if (m < M) addDots(c, a, b, m, M, 0, N, K);
  }

  /* The part of addProduct with rows [top, bottom) and columns [left, N), one sum at a time. */
  function addDots(c, a, b, top, bottom, left, N, K) {
    for (let m = top; m < bottom; m++) for (let n = left; n < N; n++) {
      let sum = 0;
      for (let k = 0; k < K; k++) sum += a[m * K + k] * b[n * K + k];
      c[m * N + n] += sum;
    }
  }

  function transpose(x, rows, columns) {
    const y = new Float64Array(rows * columns);
    for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) y[j * rows + i] = x[i * columns + j];
    return y;
  }

  /* y [M, N] = x [M, K] Wᵀ + b, W [N, K]; without b if it is undefined. */
  function linear(y, x, weight, bias, M, N, K) {
    for (let m = 0; m < M; m++) {
      if (bias) y.set(bias, m * N);
      else y.fill(0, m * N, m * N + N);
    }
    addProduct(y, x, weight, M, N, K);
  }

  /* Adds to the gradients of W and b those of `linear`, given dy [M, N] and x [M, K]. */
  function addWeightGradient(dWeight, dBias, dy, x, M, N, K) {
    addProduct(dWeight, transpose(dy, M, N), transpose(x, M, K), N, K, M);
    if (dBias) for (let m = 0; m < M; m++) for (let n = 0; n < N; n++) dBias[n] += dy[m * N + n];
  }

  const sigmoid = x => 1 / (1 + Math.exp(-x));
  const tanh = x => 1 - 2 / (Math.exp(2 * x) + 1); // twice as fast as Math.tanh

  /* Block i of an array of blocks of this size: a view. */
  const block = (x, i, size) => x.subarray(i * size, (i + 1) * size);

  /* GRU: r, z = σ(·), n = tanh(W_n x + r (U_n h + b)), h' = n + z (h - n).
     x and h hold W x + b and U h + b, [B, 3 H]; gates receives r, z and n. */
  function gru(next, gates, x, h, previous, B, H) {
    for (let b = 0; b < B; b++) for (let k = 0, p = b * 3 * H, s = b * H; k < H; k++, p++, s++) {
      const r = gates[p] = sigmoid(x[p] + h[p]);
      const z = gates[p + H] = sigmoid(x[p + H] + h[p + H]);
      const n = gates[p + 2 * H] = tanh(x[p + 2 * H] + r * h[p + 2 * H]);
      next[s] = n + z * (previous[s] - n);
    }
  }

  /* Backward pass of `gru`: sets dx and dh, adds to dPrevious. */
  function gruBackward(dx, dh, dPrevious, dNext, gates, h, previous, B, H) {
    for (let b = 0; b < B; b++) for (let k = 0, p = b * 3 * H, s = b * H; k < H; k++, p++, s++) {
      const r = gates[p], z = gates[p + H], n = gates[p + 2 * H], d = dNext[s];
      const dn = d * (1 - z) * (1 - n * n);
      dx[p + 2 * H] = dn;
      dh[p + 2 * H] = dn * r;
      dx[p] = dh[p] = dn * h[p + 2 * H] * r * (1 - r);
      dx[p + H] = dh[p + H] = d * (previous[s] - n) * z * (1 - z);
      dPrevious[s] += d * z;
    }
  }

  /* Network */

  function shapes({ V, E, U, H, A }) {
    const D = 2 * U, context = A ? D : 0;
    const direction = suffix => ({
      [`encoder.network.weight_ih_l0${suffix}`]: [3 * U, E],
      [`encoder.network.weight_hh_l0${suffix}`]: [3 * U, U],
      [`encoder.network.bias_ih_l0${suffix}`]: [3 * U],
      [`encoder.network.bias_hh_l0${suffix}`]: [3 * U],
    });
    return {
      "source_embedding.table.weight": [V, E],
      ...direction(""),
      ...direction("_reverse"),
      "bridge.maps.0.0.weight": [H, D],
      "bridge.maps.0.0.bias": [H],
      "target_embedding.table.weight": [V, E],
      ...(A && {
        "decoder.attention.query.weight": [A, H],
        "decoder.attention.key.weight": [A, D],
        "decoder.attention.energy.weight": [1, A],
      }),
      "decoder.cells.cells.0.weight_ih": [3 * H, E + context],
      "decoder.cells.cells.0.weight_hh": [3 * H, H],
      "decoder.cells.cells.0.bias_ih": [3 * H],
      "decoder.cells.cells.0.bias_hh": [3 * H],
      "readout.output.weight": [V, H + context],
      "readout.output.bias": [V],
    };
  }

  /* A network with A = 0 has no attention. All parameters are one array, so that Adam is one loop. */
  function makeNetwork(sizes, random = Math.random) {
    const table = shapes(sizes), length = Object.values(table).reduce((sum, [n, k = 1]) => sum + n * k, 0);
    const arrays = Array.from({ length: 4 }, () => new Float64Array(length));
    const [weights, gradients, mean, square] = arrays;
    const network = { sizes, weights, gradients, mean, square, steps: 0, w: {}, d: {} };
    let start = 0;
    for (const [name, [n, k = 1]] of Object.entries(table)) {
      network.w[name] = weights.subarray(start, start + n * k);
      network.d[name] = gradients.subarray(start, start += n * k);
    }
    initialise(network, table, random);
    return network;
  }

  /* torch's initial distributions: N(0, 1) for embeddings, U(-1/√K, 1/√K) for the rest, K the inputs or the units. */
  function initialise({ sizes, w }, table, random) {
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    for (const [name, [, inputs]] of Object.entries(table)) {
      if (name.includes("embedding")) {
        for (let i = sizes.E; i < w[name].length; i++) w[name][i] = normal(); // row 0 is PAD: zeros
        continue;
      }
      const weight = name.replace("bias", "weight");
      const K = name.startsWith("encoder") ? sizes.U : name.startsWith("decoder.cells") ? sizes.H : inputs ?? table[weight][1];
      for (let i = 0; i < w[name].length; i++) w[name][i] = (2 * random() - 1) / Math.sqrt(K);
    }
  }

  function embed(y, table, tokens, E, width = E) {
    for (let i = 0; i < tokens.length; i++) y.set(block(table, tokens[i], E), i * width);
  }

  const DIRECTIONS = ["", "_reverse"];

  /* Encodes sources [S, B] to a memory [S, B, D], and to its final states [B, D]. */
  function encode({ sizes: { E, U }, w }, sources, S, B) {
    const D = 2 * U, embedded = new Float64Array(S * B * E);
    embed(embedded, w["source_embedding.table.weight"], sources, E);
    const memory = new Float64Array(S * B * D), final = new Float64Array(B * D);
    const directions = DIRECTIONS.map((suffix, direction) => {
      const weight = name => w[`encoder.network.${name}_l0${suffix}`];
      const x = new Float64Array(S * B * 3 * U), h = x.slice(), gates = x.slice();
      const states = new Float64Array((S + 1) * B * U); // block i: the state before the i-th token read; block S: the last
      linear(x, embedded, weight("weight_ih"), weight("bias_ih"), S * B, 3 * U, E);
      for (let i = 0; i < S; i++) {
        const at = direction ? S - 1 - i : i, state = block(states, i, B * U), next = block(states, i + 1, B * U);
        linear(block(h, i, B * 3 * U), state, weight("weight_hh"), weight("bias_hh"), B, 3 * U, U);
        gru(next, block(gates, i, B * 3 * U), block(x, at, B * 3 * U), block(h, i, B * 3 * U), state, B, U);
        for (let b = 0; b < B; b++) memory.set(block(next, b, U), (at * B + b) * D + direction * U);
      }
      for (let b = 0; b < B; b++) final.set(block(block(states, S, B * U), b, U), b * D + direction * U);
      return { h, gates, states };
    });
    return { embedded, memory, final, directions };
  }

  /* Attends with queries [B, H]: writes tanh(W s + U h_j) [S, B, A], weights [S, B] and contexts [B, D]. */
  function attend({ sizes: { U, H, A }, w }, query, { memory, keys }, hidden, weights, context, S, B) {
    const D = 2 * U, v = w["decoder.attention.energy.weight"], q = new Float64Array(B * A);
    linear(q, query, w["decoder.attention.query.weight"], undefined, B, A, H);
    for (let jb = 0; jb < S * B; jb++) {
      let score = 0;
      for (let k = 0, p = jb * A, r = (jb % B) * A; k < A; k++, p++, r++) score += v[k] * (hidden[p] = tanh(q[r] + keys[p]));
      weights[jb] = score;
    }
    context.fill(0);
    for (let b = 0; b < B; b++) {
      let largest = -Infinity, sum = 0;
      for (let jb = b; jb < S * B; jb += B) largest = Math.max(largest, weights[jb]);
      for (let jb = b; jb < S * B; jb += B) sum += weights[jb] = Math.exp(weights[jb] - largest);
      for (let jb = b; jb < S * B; jb += B) {
        const weight = weights[jb] /= sum;
        for (let k = 0, p = jb * D, c = b * D; k < D; k++) context[c + k] += weight * memory[p + k];
      }
    }
  }

  /* Encodes sources [S, B] and decodes T tokens. The inputs are SOS and the targets [T, B], or, without targets, the most
     probable tokens. Returns every activation that the backward pass reads. */
  function forward(network, sources, S, B, T, targets) {
    const { sizes: { V, E, U, H, A }, w } = network, D = A ? 2 * U : 0, I = E + D, F = H + D;
    const encoded = encode(network, sources, S, B);
    const floats = (...sizes) => new Float64Array(sizes.reduce((product, size) => product * size, 1));
    const states = floats(T + 1, B, H); // block i: the state before step i
    linear(block(states, 0, B * H), encoded.final, w["bridge.maps.0.0.weight"], w["bridge.maps.0.0.bias"], B, H, 2 * U);
    for (let k = 0; k < B * H; k++) states[k] = tanh(states[k]);
    if (A) linear(encoded.keys = floats(S, B, A), encoded.memory, w["decoder.attention.key.weight"], undefined, S * B, A, D);
    const inputs = floats(T, B, I), features = floats(T, B, F), probabilities = floats(T, B, V);
    const h = floats(T, B, 3 * H), gates = floats(T, B, 3 * H), hidden = floats(T, S, B, A), weights = floats(T, S, B);
    const tokens = new Int32Array(T * B), x = floats(B, 3 * H), context = floats(B, D);
    let previous = new Int32Array(B).fill(SOS);
    for (let i = 0; i < T; i++) {
      const state = block(states, i, B * H), next = block(states, i + 1, B * H), input = block(inputs, i, B * I);
      embed(input, w["target_embedding.table.weight"], previous, E, I);
      if (A) attend(network, state, encoded, block(hidden, i, S * B * A), block(weights, i, S * B), context, S, B);
      for (let b = 0; b < B; b++) input.set(block(context, b, D), b * I + E);
      linear(x, input, w["decoder.cells.cells.0.weight_ih"], w["decoder.cells.cells.0.bias_ih"], B, 3 * H, I);
      linear(block(h, i, B * 3 * H), state, w["decoder.cells.cells.0.weight_hh"], w["decoder.cells.cells.0.bias_hh"], B, 3 * H, H);
      gru(next, block(gates, i, B * 3 * H), x, block(h, i, B * 3 * H), state, B, H);
      const feature = block(features, i, B * F), p = block(probabilities, i, B * V);
      for (let b = 0; b < B; b++) {
        feature.set(block(next, b, H), b * F);
        feature.set(block(context, b, D), b * F + H);
      }
      linear(p, feature, w["readout.output.weight"], w["readout.output.bias"], B, V, F);
      for (let b = 0; b < B; b++) tokens[i * B + b] = softmax(block(p, b, V));
      previous = block(targets ?? tokens, i, B);
    }
    return { ...encoded, inputs, states, h, gates, hidden, weights, features, probabilities, tokens };
  }

  /* Replaces logits by probabilities; returns the most probable token, neither PAD nor SOS. */
  function softmax(p) {
    let best = EOS, largest = -Infinity, sum = 0;
    for (let v = 0; v < p.length; v++) largest = Math.max(largest, p[v]);
    for (let v = EOS; v < p.length; v++) if (p[v] > p[best]) best = v;
    for (let v = 0; v < p.length; v++) sum += p[v] = Math.exp(p[v] - largest);
    for (let v = 0; v < p.length; v++) p[v] /= sum;
    return best;
  }

  /* Returns the mean cross-entropy of targets [S + 1, B], in nats per token, and sets the gradients. */
  function lossAndGradients(network, sources, targets, S, B) {
    const { sizes: { V, E, U, H, A }, w, d } = network, T = S + 1, D = A ? 2 * U : 0, I = E + D, F = H + D;
    const run = forward(network, sources, S, B, T, targets), { memory, hidden, weights } = run;
    network.gradients.fill(0);
    const dLogits = run.probabilities; // p - y, over the number of tokens
    let loss = 0;
    for (let i = 0; i < T * B; i++) {
      loss -= Math.log(dLogits[i * V + targets[i]]);
      dLogits[i * V + targets[i]] -= 1;
    }
    for (let k = 0; k < dLogits.length; k++) dLogits[k] /= T * B;
    addWeightGradient(d["readout.output.weight"], d["readout.output.bias"], dLogits, run.features, T * B, V, F);
    const dFeatures = new Float64Array(T * B * F);
    addProduct(dFeatures, dLogits, transpose(w["readout.output.weight"], V, F), T * B, F, V);

    const toInput = transpose(w["decoder.cells.cells.0.weight_ih"], 3 * H, I);
    const toState = transpose(w["decoder.cells.cells.0.weight_hh"], 3 * H, H);
    const toQuery = A && transpose(w["decoder.attention.query.weight"], A, H);
    const dx = new Float64Array(T * B * 3 * H), dh = dx.slice(), dInputs = new Float64Array(T * B * I);
    const dMemory = new Float64Array(memory.length), dKeys = new Float64Array(S * B * A), dQueries = new Float64Array(T * B * A);
    const dContext = new Float64Array(B * D), v = w["decoder.attention.energy.weight"], dv = d["decoder.attention.energy.weight"];
    let dState = new Float64Array(B * H);
    for (let i = T - 1; i >= 0; i--) {
      const state = block(run.states, i, B * H), dFeature = block(dFeatures, i, B * F), dInput = block(dInputs, i, B * I);
      for (let b = 0; b < B; b++) for (let k = 0; k < H; k++) dState[b * H + k] += dFeature[b * F + k];
      const dPrevious = new Float64Array(B * H), dxi = block(dx, i, B * 3 * H), dhi = block(dh, i, B * 3 * H);
      gruBackward(dxi, dhi, dPrevious, dState, block(run.gates, i, B * 3 * H), block(run.h, i, B * 3 * H), state, B, H);
      addProduct(dPrevious, dhi, toState, B, H, 3 * H);
      addProduct(dInput, dxi, toInput, B, I, 3 * H);
      if (A) {
        for (let b = 0; b < B; b++) for (let k = 0; k < D; k++) dContext[b * D + k] = dFeature[b * F + H + k] + dInput[b * I + E + k];
        const dQuery = block(dQueries, i, B * A);
        attendBackward(dContext, block(weights, i, S * B), block(hidden, i, S * B * A), memory, v, dMemory, dKeys, dQuery, dv, S, B, D, A);
        addProduct(dPrevious, dQuery, toQuery, B, H, A);
      }
      dState = dPrevious;
    }
    addWeightGradient(d["decoder.cells.cells.0.weight_ih"], d["decoder.cells.cells.0.bias_ih"], dx, run.inputs, T * B, 3 * H, I);
    addWeightGradient(d["decoder.cells.cells.0.weight_hh"], d["decoder.cells.cells.0.bias_hh"], dh, run.states, T * B, 3 * H, H);
    for (let i = 0; i < T * B; i++) addRow(d["target_embedding.table.weight"], i < B ? SOS : targets[i - B], dInputs, i * I, E);
    if (A) {
      addWeightGradient(d["decoder.attention.query.weight"], undefined, dQueries, run.states, T * B, A, H);
      addWeightGradient(d["decoder.attention.key.weight"], undefined, dKeys, memory, S * B, A, D);
      addProduct(dMemory, dKeys, transpose(w["decoder.attention.key.weight"], A, D), S * B, D, A);
    }
    for (let k = 0; k < B * H; k++) dState[k] *= 1 - run.states[k] ** 2;
    addWeightGradient(d["bridge.maps.0.0.weight"], d["bridge.maps.0.0.bias"], dState, run.final, B, H, 2 * U);
    const dFinal = new Float64Array(B * 2 * U);
    addProduct(dFinal, dState, transpose(w["bridge.maps.0.0.weight"], H, 2 * U), B, 2 * U, H);
    encodeBackward(network, run, dMemory, dFinal, sources, S, B);
    return loss / (T * B);
  }

  /* Backward pass of `attend`: adds to all gradients, given that of the contexts. */
  function attendBackward(dContext, weights, hidden, memory, v, dMemory, dKeys, dQuery, dv, S, B, D, A) {
    const dWeights = new Float64Array(S * B), dot = new Float64Array(B); // dot: Σ_j α_j ∂L/∂α_j
    for (let jb = 0; jb < S * B; jb++) {
      const b = jb % B;
      let sum = 0;
      for (let k = 0, p = jb * D, c = b * D; k < D; k++) {
        sum += dContext[c + k] * memory[p + k];
        dMemory[p + k] += weights[jb] * dContext[c + k];
      }
      dWeights[jb] = sum;
      dot[b] += weights[jb] * sum;
    }
    for (let jb = 0; jb < S * B; jb++) {
      const dScore = weights[jb] * (dWeights[jb] - dot[jb % B]);
      for (let k = 0, p = jb * A, q = (jb % B) * A; k < A; k++, p++, q++) {
        const t = hidden[p], slope = dScore * v[k] * (1 - t * t);
        dv[k] += dScore * t;
        dKeys[p] += slope;
        dQuery[q] += slope;
      }
    }
  }

  function encodeBackward({ sizes: { E, U }, w, d }, { embedded, directions }, dMemory, dFinal, sources, S, B) {
    const D = 2 * U, dEmbedded = new Float64Array(S * B * E);
    directions.forEach(({ h, gates, states }, direction) => {
      const name = part => `encoder.network.${part}_l0${DIRECTIONS[direction]}`;
      const toState = transpose(w[name("weight_hh")], 3 * U, U);
      const dx = new Float64Array(S * B * 3 * U), dh = dx.slice();
      let dState = new Float64Array(B * U);
      for (let b = 0; b < B; b++) dState.set(dFinal.subarray(b * D + direction * U, b * D + direction * U + U), b * U);
      for (let i = S - 1; i >= 0; i--) {
        const at = direction ? S - 1 - i : i, dPrevious = new Float64Array(B * U), size = B * 3 * U;
        for (let b = 0; b < B; b++) for (let k = 0; k < U; k++) dState[b * U + k] += dMemory[(at * B + b) * D + direction * U + k];
        gruBackward(block(dx, at, size), block(dh, i, size), dPrevious, dState, block(gates, i, size), block(h, i, size), block(states, i, B * U), B, U);
        addProduct(dPrevious, block(dh, i, size), toState, B, U, 3 * U);
        dState = dPrevious;
      }
      addWeightGradient(d[name("weight_ih")], d[name("bias_ih")], dx, embedded, S * B, 3 * U, E);
      addWeightGradient(d[name("weight_hh")], d[name("bias_hh")], dh, states, S * B, 3 * U, U);
      addProduct(dEmbedded, dx, transpose(w[name("weight_ih")], 3 * U, E), S * B, E, 3 * U);
    });
    for (let i = 0; i < S * B; i++) addRow(d["source_embedding.table.weight"], sources[i], dEmbedded, i * E, E);
  }

  function addRow(table, row, x, start, E) {
    for (let k = 0; k < E; k++) table[row * E + k] += x[start + k];
  }

  /* One step of Adam (Kingma & Ba, 2015), with torch's defaults, after clipping the norm of the gradients to 1. */
  function adam(network, rate) {
    const { weights, gradients, mean, square } = network, t = ++network.steps;
    let norm = 0;
    for (let k = 0; k < gradients.length; k++) norm += gradients[k] * gradients[k];
    const scale = Math.min(1, 1 / (Math.sqrt(norm) + 1e-6));
    const first = 1 - 0.9 ** t, second = 1 - 0.999 ** t;
    for (let k = 0; k < weights.length; k++) {
      const g = gradients[k] * scale;
      const m = mean[k] += 0.1 * (g - mean[k]);
      const s = square[k] += 0.001 * (g * g - square[k]);
      weights[k] -= rate * (m / first) / (Math.sqrt(s / second) + 1e-8);
    }
  }

  /* Draws B pairs of a sequence of symbols 3 … V - 1 and its reverse: sources [S, B] and targets [S + 1, B]. */
  function drawReversals(V, S, B, random) {
    const sources = Int32Array.from({ length: S * B }, () => 3 + Math.floor(random() * (V - 3)));
    return { sources, targets: reversed(sources, S, B) };
  }

  function reversed(sources, S, B) {
    const targets = new Int32Array((S + 1) * B).fill(EOS);
    for (let i = 0; i < S; i++) targets.set(block(sources, S - 1 - i, B), i * B);
    return targets;
  }

  /* Trains on one batch of B new pairs; returns the loss before the update. */
  function trainStep(network, S, B, rate, random) {
    const { sources, targets } = drawReversals(network.sizes.V, S, B, random);
    const loss = lossAndGradients(network, sources, targets, S, B);
    adam(network, rate);
    return loss;
  }

  /* Returns how many of B new sequences of length S greedy search reverses exactly. */
  function countExact(network, S, B, random) {
    const { sources, targets } = drawReversals(network.sizes.V, S, B, random);
    const { tokens } = forward(network, sources, S, B, S + 1);
    let exact = 0;
    for (let b = 0; b < B; b++) {
      let i = 0;
      while (i <= S && tokens[i * B + b] === targets[i * B + b]) i++;
      exact += i > S;
    }
    return exact;
  }

  /* Decodes one sequence greedily; returns the tokens, EOS included, and the weights of each, an array of rows. */
  function decode(network, sequence) {
    const S = sequence.length, T = S + 3, { tokens, weights } = forward(network, Int32Array.from(sequence), S, 1, T);
    const end = tokens.indexOf(EOS), length = end < 0 ? T : end + 1;
    return { tokens: [...tokens.subarray(0, length)], weights: weights.subarray(0, length * S) };
  }

  return { makeNetwork, lossAndGradients, adam, trainStep, countExact, decode };
})();
