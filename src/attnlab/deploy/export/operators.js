"use strict";
/* Interpreter of ONNX graphs: the operators that occur in exported networks.

   A tensor is { shape, data }, where data is a Float32Array, an Int32Array (all integers) or a Uint8Array
   (booleans). `prepareGraph` reads a graph, and `runGraph` computes it node by node. */

const onnx = (() => {
  const product = sizes => sizes.reduce((all, size) => all * size, 1);
  const tensor = (shape, data) => ({ shape, data });
  const floats = shape => tensor(shape, new Float32Array(product(shape)));
  const like = (shape, data) => tensor(shape, new data.constructor(product(shape)));
  const axisOf = (axis, shape) => (axis < 0 ? axis + shape.length : axis);
  const list = input => (input === undefined ? undefined : Array.from(input.data));
  const integers = values => tensor([values.length], Int32Array.from(values));

  function stridesOf(shape) {
    const strides = new Array(shape.length);
    for (let axis = shape.length - 1, stride = 1; axis >= 0; stride *= shape[axis--]) strides[axis] = stride;
    return strides;
  }

  /* Calls visit(position in the output, offset in each input) for every element of the shape. */
  function walk(shape, strides, visit) {
    const size = product(shape), index = new Array(shape.length).fill(0), offsets = strides.map(() => 0);
    for (let place = 0; place < size; place++) {
      visit(place, offsets);
      for (let axis = shape.length - 1; axis >= 0; axis--) {
        index[axis]++;
        for (let k = 0; k < offsets.length; k++) offsets[k] += strides[k][axis];
        if (index[axis] < shape[axis]) break;
        for (let k = 0; k < offsets.length; k++) offsets[k] -= strides[k][axis] * shape[axis];
        index[axis] = 0;
      }
    }
  }

  /* Broadcasting: the common shape, and strides that are 0 along repeated axes. */
  function broadcastShape(...shapes) {
    const rank = Math.max(...shapes.map(shape => shape.length));
    const padded = shapes.map(shape => [...new Array(rank - shape.length).fill(1), ...shape]);
    return Array.from({ length: rank }, (_, axis) => {
      const sizes = padded.map(shape => shape[axis]).filter(size => size !== 1);
      return sizes.length ? sizes[0] : 1;
    });
  }
  function broadcastStrides(shape, target) {
    const strides = stridesOf(shape), missing = target.length - shape.length;
    return target.map((_, axis) => (axis < missing || shape[axis - missing] === 1 ? 0 : strides[axis - missing]));
  }
  const sameShape = (one, other) => one.length === other.length && one.every((size, axis) => size === other[axis]);

  const unary = compute => ([x]) => {
    const y = like(x.shape, x.data);
    for (let i = 0; i < y.data.length; i++) y.data[i] = compute(x.data[i]);
    return [y];
  };
  const binary = (compute, Type) => ([a, b]) => {
    const shape = broadcastShape(a.shape, b.shape);
    const data = new (Type || a.data.constructor)(product(shape)), x = a.data, y = b.data;
    if (sameShape(a.shape, b.shape)) for (let i = 0; i < data.length; i++) data[i] = compute(x[i], y[i]);
    else if (y.length === 1 && sameShape(a.shape, shape)) for (let i = 0; i < data.length; i++) data[i] = compute(x[i], y[0]);
    else {
      const strides = [broadcastStrides(a.shape, shape), broadcastStrides(b.shape, shape)];
      walk(shape, strides, (place, [i, j]) => { data[place] = compute(x[i], y[j]); });
    }
    return [tensor(shape, data)];
  };
  const divide = (a, b) => a / b;

  /* Splits a shape at an axis into outer × size × inner. */
  function around(shape, axis) {
    return [product(shape.slice(0, axis)), shape[axis], product(shape.slice(axis + 1))];
  }

  const alongAxis = compute => ([x], { axis = -1 }) => {
    const y = like(x.shape, x.data), [outer, size, inner] = around(x.shape, axisOf(axis, x.shape));
    for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) compute(x.data, y.data, o * size * inner + i, size, inner);
    return [y];
  };
  const softmax = (x, y, start, size, step) => {
    let largest = -Infinity, sum = 0;
    for (let k = 0, p = start; k < size; k++, p += step) largest = Math.max(largest, x[p]);
    for (let k = 0, p = start; k < size; k++, p += step) sum += y[p] = Math.exp(x[p] - largest);
    for (let k = 0, p = start; k < size; k++, p += step) y[p] /= sum;
  };
  const logSoftmax = (x, y, start, size, step) => {
    let largest = -Infinity, sum = 0;
    for (let k = 0, p = start; k < size; k++, p += step) largest = Math.max(largest, x[p]);
    for (let k = 0, p = start; k < size; k++, p += step) sum += Math.exp(x[p] - largest);
    const shift = largest + Math.log(sum);
    for (let k = 0, p = start; k < size; k++, p += step) y[p] = x[p] - shift;
  };

  const logAddExp = (a, b) => a === b ? a + Math.log(2) : Math.max(a, b) + Math.log1p(Math.exp(-Math.abs(a - b)));

  const reduce = (initial, add, finish = value => value) => ([x, axesInput], { axes, keepdims = 1 }) => {
    const given = list(axesInput) || axes || [];
    const reduced = new Set((given.length ? given : x.shape.map((_, axis) => axis)).map(axis => axisOf(axis, x.shape)));
    const kept = x.shape.map((size, axis) => (reduced.has(axis) ? 1 : size));
    const sums = new Float64Array(product(kept)).fill(initial);
    walk(x.shape, [broadcastStrides(kept, x.shape)], (place, [to]) => { sums[to] = add(sums[to], x.data[place]); });
    const count = x.data.length / Math.max(sums.length, 1);
    const data = x.data.constructor.from(sums, value => finish(value, count));
    return [tensor(keepdims ? kept : x.shape.filter((_, axis) => !reduced.has(axis)), data)];
  };

  /* y [M, N] += x [M, K] W [K, N], each at an offset. */
  function multiply(x, from, w, weights, y, to, M, K, N) {
    const sums = new Float64Array(N);
    for (let m = 0; m < M; m++) {
      sums.fill(0);
      let k = 0;
      for (; k + 3 < K; k += 4) { // four rows at once: fewer reads and writes of the sums
        const start = from + m * K + k, a = x[start], b = x[start + 1], c = x[start + 2], d = x[start + 3];
        const p = weights + k * N, q = p + N, r = q + N, s = r + N;
        for (let n = 0; n < N; n++) sums[n] += a * w[p + n] + b * w[q + n] + c * w[r + n] + d * w[s + n];
      }
      for (; k < K; k++) for (let n = 0, a = x[from + m * K + k], p = weights + k * N; n < N; n++) sums[n] += a * w[p + n];
      for (let n = 0; n < N; n++) y[to + m * N + n] += sums[n];
    }
  }
  function matmul([a, b]) {
    const [M, K, N] = [a.shape.at(-2), a.shape.at(-1), b.shape.at(-1)];
    const outer = broadcastShape(a.shape.slice(0, -2), b.shape.slice(0, -2));
    const y = floats([...outer, M, N]);
    const strides = [a, b].map(part => broadcastStrides(part.shape.slice(0, -2), outer));
    walk(outer, strides, (place, [i, j]) => multiply(a.data, i * M * K, b.data, j * K * N, y.data, place * M * N, M, K, N));
    return [y];
  }
  function transpose([x], { perm }) {
    const order = perm || x.shape.map((_, axis) => x.shape.length - 1 - axis), strides = stridesOf(x.shape);
    const y = like(order.map(axis => x.shape[axis]), x.data);
    walk(y.shape, [order.map(axis => strides[axis])], (place, [from]) => { y.data[place] = x.data[from]; });
    return [y];
  }
  function gemm([a, b, c], { transA = 0, transB = 0, alpha = 1, beta = 1 }) {
    const [y] = matmul([transA ? transpose([a], {})[0] : a, transB ? transpose([b], {})[0] : b]);
    if (alpha !== 1) y.data.forEach((value, i) => { y.data[i] = alpha * value; });
    if (!c) return [y];
    const scaled = beta === 1 ? c : tensor(c.shape, c.data.map(value => beta * value));
    return operators.Add([y, scaled]);
  }
  function gather([x, index], { axis = 0 }) {
    axis = axisOf(axis, x.shape);
    const [outer, size, inner] = around(x.shape, axis);
    const y = like([...x.shape.slice(0, axis), ...index.shape, ...x.shape.slice(axis + 1)], x.data);
    let to = 0;
    for (let o = 0; o < outer; o++) for (const place of index.data) {
      const from = (o * size + (place < 0 ? place + size : place)) * inner;
      for (let i = 0; i < inner; i++) y.data[to++] = x.data[from + i];
    }
    return [y];
  }
  function gatherElements([x, index], { axis = 0 }) {
    axis = axisOf(axis, x.shape);
    const strides = stridesOf(x.shape), y = like(index.shape, x.data), along = strides[axis];
    const others = strides.map((stride, k) => (k === axis ? 0 : stride));
    walk(index.shape, [others], (place, [from]) => {
      const at = index.data[place];
      y.data[place] = x.data[from + (at < 0 ? at + x.shape[axis] : at) * along];
    });
    return [y];
  }
  function scatterElements([x, index, updates], { axis = 0, reduction = "none" }) {
    axis = axisOf(axis, x.shape);
    const y = tensor(x.shape, x.data.slice()), strides = stridesOf(x.shape), along = strides[axis];
    const others = strides.map((stride, k) => (k === axis ? 0 : stride));
    walk(index.shape, [others], (place, [base]) => {
      const at = index.data[place], to = base + (at < 0 ? at + x.shape[axis] : at) * along;
      y.data[to] = reduction === "add" ? y.data[to] + updates.data[place] : updates.data[place];
    });
    return [y];
  }
  function scatterND([x, index, updates], { reduction = "none" }) {
    const y = tensor(x.shape, x.data.slice()), depth = index.shape.at(-1), strides = stridesOf(x.shape);
    const width = product(x.shape.slice(depth)), place = (at, size) => (at < 0 ? at + size : at);
    for (let row = 0; row * depth < index.data.length; row++) {
      let to = 0;
      for (let axis = 0; axis < depth; axis++) to += place(index.data[row * depth + axis], x.shape[axis]) * strides[axis];
      for (let i = 0; i < width; i++) {
        const update = updates.data[row * width + i];
        y.data[to + i] = reduction === "add" ? y.data[to + i] + update : update;
      }
    }
    return [y];
  }
  function concat(inputs, { axis }) {
    axis = axisOf(axis, inputs[0].shape);
    const shape = inputs[0].shape.slice();
    shape[axis] = inputs.reduce((sum, input) => sum + input.shape[axis], 0);
    const y = like(shape, inputs[0].data), outer = product(shape.slice(0, axis));
    const widths = inputs.map(input => product(input.shape.slice(axis)));
    for (let o = 0, to = 0; o < outer; o++) inputs.forEach((input, k) => {
      y.data.set(input.data.subarray(o * widths[k], (o + 1) * widths[k]), to);
      to += widths[k];
    });
    return [y];
  }
  function slice([x, starts, ends, axes, steps]) {
    const from = x.shape.map(() => 0), by = x.shape.map(() => 1), shape = x.shape.slice();
    starts.data.forEach((start, k) => {
      const axis = axisOf(axes ? axes.data[k] : k, x.shape), size = x.shape[axis], step = steps ? steps.data[k] : 1;
      const low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
      const clamp = place => Math.min(Math.max(place < 0 ? place + size : place, low), high);
      from[axis] = clamp(start);
      by[axis] = step;
      shape[axis] = Math.max(0, Math.ceil((clamp(ends.data[k]) - from[axis]) / step));
    });
    const strides = stridesOf(x.shape), y = like(shape, x.data);
    const start = from.reduce((sum, place, axis) => sum + place * strides[axis], 0);
    walk(shape, [strides.map((stride, axis) => stride * by[axis])], (place, [at]) => { y.data[place] = x.data[start + at]; });
    return [y];
  }
  function split([x, sizes], { axis = 0, num_outputs: count }) {
    axis = axisOf(axis, x.shape);
    const chunk = Math.ceil(x.shape[axis] / count);
    const widths = list(sizes) || Array.from({ length: count }, (_, k) => Math.min(chunk, x.shape[axis] - k * chunk));
    let start = 0;
    return widths.map(width => slice([x, integers([start]), integers([start += width]), integers([axis])])[0]);
  }
  function pad([x, pads, value, axesInput], { mode = "constant" }) {
    if (mode !== "constant") throw new Error(`Pad with mode ${mode}`);
    const axes = list(axesInput) || x.shape.map((_, axis) => axis), before = x.shape.map(() => 0), shape = x.shape.slice();
    axes.forEach((axis, k) => {
      axis = axisOf(axis, x.shape);
      before[axis] = pads.data[k];
      shape[axis] += pads.data[k] + pads.data[k + axes.length];
    });
    const y = like(shape, x.data);
    if (value && value.data.length) y.data.fill(value.data[0]);
    const strides = stridesOf(shape), index = x.shape.map(() => 0);
    for (let from = 0; from < x.data.length; from++) {
      let to = 0, inside = true;
      for (let axis = 0; axis < shape.length; axis++) {
        const place = index[axis] + before[axis];
        inside = inside && place >= 0 && place < shape[axis];
        to += place * strides[axis];
      }
      if (inside) y.data[to] = x.data[from];
      for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === x.shape[axis]; axis--) index[axis] = 0;
    }
    return [y];
  }
  function expandTo(x, shape) {
    const y = like(shape, x.data);
    walk(shape, [broadcastStrides(x.shape, shape)], (place, [from]) => { y.data[place] = x.data[from]; });
    return y;
  }
  function reshape([x, target], { allowzero = 0 }) {
    const shape = list(target).map((size, axis) => (size === 0 && !allowzero ? x.shape[axis] : size));
    const known = product(shape.filter(size => size !== -1));
    return [tensor(shape.map(size => (size === -1 ? x.data.length / known : size)), x.data)];
  }
  function unsqueeze([x, axes]) {
    const rank = x.shape.length + axes.data.length, added = new Set(list(axes).map(axis => (axis < 0 ? axis + rank : axis)));
    const sizes = x.shape.slice();
    return [tensor(Array.from({ length: rank }, (_, axis) => (added.has(axis) ? 1 : sizes.shift())), x.data)];
  }
  function squeeze([x, axes]) {
    const removed = axes && new Set(list(axes).map(axis => axisOf(axis, x.shape)));
    return [tensor(x.shape.filter((size, axis) => (removed ? !removed.has(axis) : size !== 1)), x.data)];
  }
  function cast([x], { to }) {
    const Type = { 1: Float32Array, 6: Int32Array, 7: Int32Array, 9: Uint8Array, 10: Float32Array, 11: Float32Array }[to];
    if (!Type) throw new Error(`Cast to type ${to}`);
    return [tensor(x.shape, Type.from(x.data, Type === Uint8Array ? value => (value ? 1 : 0) : Type === Int32Array ? Math.trunc : undefined))];
  }
  function topK([x, count], { axis = -1, largest = 1 }) {
    axis = axisOf(axis, x.shape);
    const [outer, size, inner] = around(x.shape, axis), k = count.data[0], shape = x.shape.slice();
    shape[axis] = k;
    const values = like(shape, x.data), places = tensor(shape, new Int32Array(product(shape)));
    for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) {
      const at = place => x.data[(o * size + place) * inner + i];
      const order = Array.from({ length: size }, (_, place) => place).sort((a, b) => (largest ? at(b) - at(a) : at(a) - at(b)) || a - b);
      for (let rank = 0; rank < k; rank++) {
        values.data[(o * k + rank) * inner + i] = at(order[rank]);
        places.data[(o * k + rank) * inner + i] = order[rank];
      }
    }
    return [values, places];
  }
  function argMax([x], { axis = 0, keepdims = 1 }) {
    axis = axisOf(axis, x.shape);
    const [outer, size, inner] = around(x.shape, axis), data = new Int32Array(outer * inner);
    for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) {
      let best = 0;
      for (let k = 1; k < size; k++) if (x.data[(o * size + k) * inner + i] > x.data[(o * size + best) * inner + i]) best = k;
      data[o * inner + i] = best;
    }
    return [tensor(x.shape.flatMap((size, k) => (k !== axis ? [size] : keepdims ? [1] : [])), data)];
  }
  function cumSum([x, axisInput], { exclusive = 0, reverse = 0 }) {
    const y = like(x.shape, x.data), [outer, size, inner] = around(x.shape, axisOf(axisInput.data[0], x.shape));
    for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) for (let k = 0, sum = 0; k < size; k++) {
      const place = (o * size + (reverse ? size - 1 - k : k)) * inner + i;
      y.data[place] = exclusive ? sum : sum + x.data[place];
      sum += x.data[place];
    }
    return [y];
  }
  function convolve([x, w, bias], { dilations = [1], group = 1, pads = [0, 0], strides = [1], auto_pad: automatic = "NOTSET" }) {
    if (x.shape.length !== 3 || group !== 1 || automatic !== "NOTSET") throw new Error("Conv other than one-dimensional");
    const [B, I, S] = x.shape, [O, , K] = w.shape;
    const T = Math.floor((S + pads[0] + pads[1] - dilations[0] * (K - 1) - 1) / strides[0]) + 1, y = floats([B, O, T]);
    for (let b = 0; b < B; b++) for (let o = 0; o < O; o++) for (let t = 0; t < T; t++) {
      let sum = bias ? bias.data[o] : 0;
      for (let i = 0; i < I; i++) for (let k = 0; k < K; k++) {
        const s = t * strides[0] + k * dilations[0] - pads[0];
        if (s >= 0 && s < S) sum += x.data[(b * I + i) * S + s] * w.data[(o * I + i) * K + k];
      }
      y.data[(b * O + o) * T + t] = sum;
    }
    return [y];
  }
  function layerNormalization([x, gain, bias], { axis = -1, epsilon = 1e-5 }) {
    const y = floats(x.shape), size = product(x.shape.slice(axisOf(axis, x.shape)));
    for (let start = 0; start < x.data.length; start += size) {
      let mean = 0, variance = 0;
      for (let k = 0; k < size; k++) mean += x.data[start + k] / size;
      for (let k = 0; k < size; k++) variance += (x.data[start + k] - mean) ** 2 / size;
      const scale = 1 / Math.sqrt(variance + epsilon);
      for (let k = 0; k < size; k++) y.data[start + k] = (x.data[start + k] - mean) * scale * gain.data[k] + (bias ? bias.data[k] : 0);
    }
    return [y];
  }
  const sigmoid = x => 1 / (1 + Math.exp(-x));

  /* LSTM and GRU without peepholes, clipping or initial states, as `attnlab.deploy.export.recurrent` writes them. */
  const recurrent = (gates, states, update) => ([x, w, r, bias, lengths], { hidden_size: H, direction = "forward" }) => {
    const [S, B, I] = x.shape, directions = w.shape[0], G = gates * H;
    if (direction === "reverse") throw new Error("a recurrent layer of direction reverse");
    const y = floats([S, directions, B, H]), finals = Array.from({ length: states }, () => floats([directions, B, H]));
    const fromInput = new Float64Array(G), fromState = new Float64Array(G);
    const rows = (matrix, start, width, vector, offset, sums) => {
      for (let g = 0; g < G; g++) {
        let sum = 0;
        for (let k = 0, p = start + g * width; k < width; k++, p++) sum += matrix[p] * vector[offset + k];
        sums[g] += sum;
      }
    };
    for (let d = 0; d < directions; d++) for (let b = 0; b < B; b++) {
      const length = lengths ? lengths.data[b] : S, state = Array.from({ length: states }, () => new Float32Array(H));
      for (let n = 0; n < length; n++) {
        const s = d === 0 ? n : length - 1 - n;
        for (let g = 0; g < G; g++) {
          fromInput[g] = bias ? bias.data[d * 2 * G + g] : 0;
          fromState[g] = bias ? bias.data[(d * 2 + 1) * G + g] : 0;
        }
        rows(w.data, d * G * I, I, x.data, (s * B + b) * I, fromInput);
        rows(r.data, d * G * H, H, state[0], 0, fromState);
        update(fromInput, fromState, state, H);
        y.data.set(state[0], ((s * directions + d) * B + b) * H);
      }
      state.forEach((values, k) => finals[k].data.set(values, (d * B + b) * H));
    }
    return [y, ...finals];
  };
  const lstm = recurrent(4, 2, (x, u, [hidden, cell], H) => {
    for (let k = 0; k < H; k++) {
      const [i, o, f, g] = [0, 1, 2, 3].map(gate => x[gate * H + k] + u[gate * H + k]);
      cell[k] = sigmoid(f) * cell[k] + sigmoid(i) * Math.tanh(g);
      hidden[k] = sigmoid(o) * Math.tanh(cell[k]);
    }
  });
  const gru = recurrent(3, 1, (x, u, [hidden], H) => {
    for (let k = 0; k < H; k++) {
      const z = sigmoid(x[k] + u[k]), r = sigmoid(x[H + k] + u[H + k]);
      hidden[k] = (1 - z) * Math.tanh(x[2 * H + k] + r * u[2 * H + k]) + z * hidden[k];
    }
  });

  /* Scan over axis 0 of each scanned input. */
  function scan(inputs, { body, num_scan_inputs: scanned, scan_input_directions: reversed = [], scan_output_directions: written = [] }, scope) {
    const states = inputs.slice(0, inputs.length - scanned), sequences = inputs.slice(-scanned), S = sequences[0].shape[0];
    let current = states;
    const outputs = [];
    for (let n = 0; n < S; n++) {
      const items = sequences.map((sequence, k) => {
        const width = product(sequence.shape.slice(1)), at = reversed[k] ? S - 1 - n : n;
        return tensor(sequence.shape.slice(1), sequence.data.subarray(at * width, (at + 1) * width));
      });
      const results = runGraph(body, [...current, ...items], scope);
      current = results.slice(0, states.length);
      results.slice(states.length).forEach((item, k) => {
        outputs[k] ??= like([S, ...item.shape], item.data);
        outputs[k].data.set(item.data, (written[k] ? S - 1 - n : n) * item.data.length);
      });
    }
    return [...current, ...outputs];
  }

  /* Abramowitz & Stegun 7.1.26 is too coarse for fp32; this series and continued fraction are exact to 1e-12. */
  function erf(x) {
    const size = Math.abs(x);
    if (size < 2.5) {
      let term = x, sum = x;
      for (let n = 1; n < 60; n++) sum += (term *= -x * x / n) / (2 * n + 1);
      return 2 / Math.sqrt(Math.PI) * sum;
    }
    let fraction = 0;
    for (let n = 60; n >= 1; n--) fraction = n / 2 / (size + fraction);
    return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / (size + fraction));
  }
  function clip([x, low, high]) {
    const [least, most] = [low ? low.data[0] : -Infinity, high ? high.data[0] : Infinity];
    return unary(value => Math.min(Math.max(value, least), most))([x]);
  }
  function where([condition, a, b]) {
    const shape = broadcastShape(condition.shape, a.shape, b.shape), y = like(shape, a.data);
    const strides = [condition, a, b].map(part => broadcastStrides(part.shape, shape));
    walk(shape, strides, (place, [c, i, j]) => { y.data[place] = condition.data[c] ? a.data[i] : b.data[j]; });
    return [y];
  }
  function trilu([x, k], { upper = 1 }) {
    const [rows, columns] = x.shape.slice(-2), offset = k ? k.data[0] : 0;
    const kept = index => {
      const distance = (index % columns) - (Math.floor(index / columns) % rows) - offset;
      return upper ? distance >= 0 : distance <= 0;
    };
    return [tensor(x.shape, x.data.map((value, index) => (kept(index) ? value : 0)))];
  }

  function range([start, limit, delta]) {
    const count = Math.max(0, Math.ceil((limit.data[0] - start.data[0]) / delta.data[0])), y = like([count], start.data);
    for (let i = 0; i < count; i++) y.data[i] = start.data[0] + i * delta.data[0];
    return [y];
  }

  const operators = {
    Add: binary((a, b) => a + b), Sub: binary((a, b) => a - b), Mul: binary((a, b) => a * b),
    Div: inputs => binary(inputs[0].data instanceof Float32Array ? divide : (a, b) => Math.trunc(a / b))(inputs),
    Mod: binary((a, b) => a - b * Math.floor(a / b)), Pow: binary(Math.pow),
    Min: inputs => [inputs.reduce((a, b) => binary(Math.min)([a, b])[0])],
    Max: inputs => [inputs.reduce((a, b) => binary(Math.max)([a, b])[0])],
    Equal: binary((a, b) => a === b, Uint8Array), Greater: binary((a, b) => a > b, Uint8Array), Less: binary((a, b) => a < b, Uint8Array),
    GreaterOrEqual: binary((a, b) => a >= b, Uint8Array), LessOrEqual: binary((a, b) => a <= b, Uint8Array),
    And: binary((a, b) => a & b, Uint8Array), Or: binary((a, b) => a | b, Uint8Array), Xor: binary((a, b) => a ^ b, Uint8Array),
    Not: unary(x => (x ? 0 : 1)), Identity: ([x]) => [x], Neg: unary(x => -x), Abs: unary(Math.abs), Exp: unary(Math.exp),
    Log: unary(Math.log), Sqrt: unary(Math.sqrt), Reciprocal: unary(x => 1 / x), Tanh: unary(Math.tanh), Sigmoid: unary(sigmoid),
    Relu: unary(x => Math.max(x, 0)), Erf: unary(erf), Softplus: unary(x => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))),
    Floor: unary(Math.floor), Ceil: unary(Math.ceil), Sign: unary(Math.sign), Sin: unary(Math.sin), Cos: unary(Math.cos), Trilu: trilu,
    IsNaN: ([x]) => [tensor(x.shape, Uint8Array.from(x.data, value => Number.isNaN(value)))],
    Softmax: alongAxis(softmax), LogSoftmax: alongAxis(logSoftmax),
    ReduceSum: reduce(0, (a, b) => a + b), ReduceMean: reduce(0, (a, b) => a + b, (sum, count) => sum / count),
    ReduceMax: reduce(-Infinity, Math.max), ReduceMin: reduce(Infinity, Math.min), ReduceL2: reduce(0, (a, b) => a + b * b, Math.sqrt),
    ReduceSumSquare: reduce(0, (a, b) => a + b * b), ReduceLogSumExp: reduce(-Infinity, logAddExp),
    MatMul: matmul, Gemm: gemm, Transpose: transpose, Gather: gather, GatherElements: gatherElements, ScatterElements: scatterElements, ScatterND: scatterND,
    Concat: concat, Slice: slice, Split: split, Pad: pad, Reshape: reshape, Unsqueeze: unsqueeze, Squeeze: squeeze, Cast: cast,
    Flatten: ([x], { axis = 1 }) => [tensor([product(x.shape.slice(0, axis)), product(x.shape.slice(axis))], x.data)],
    Expand: ([x, shape]) => [expandTo(x, broadcastShape(x.shape, list(shape)))],
    Shape: ([x], { start = 0, end }) => [integers(x.shape.slice(start, end))],
    Size: ([x]) => [tensor([], Int32Array.of(x.data.length))],
    ConstantOfShape: ([shape], { value }) => [expandTo(value || tensor([1], new Float32Array(1)), list(shape))],
    Constant: (_, { value }) => [value], Range: range, Where: where, Clip: clip, TopK: topK, ArgMax: argMax, CumSum: cumSum,
    Conv: convolve, LayerNormalization: layerNormalization, LSTM: lstm, GRU: gru, Scan: scan,
  };

  /* Computes a graph { inputs, outputs, values, nodes }; `outer` holds the values of an enclosing graph. */
  function runGraph(graph, inputs, outer) {
    const scope = Object.create(outer || null);
    Object.assign(scope, graph.values);
    graph.inputs.forEach((name, k) => { scope[name] = inputs[k]; });
    for (const [operator, from, to, attributes] of graph.nodes) {
      const results = operators[operator](from.map(name => (name ? scope[name] : undefined)), attributes, scope);
      to.forEach((name, k) => { if (name) scope[name] = results[k]; });
    }
    return graph.outputs.map(name => scope[name]);
  }

  /* Replaces the tensors of a graph, as `attnlab.deploy.export.browser_page` stores them, by tensors of the interpreter. */
  function prepareGraph(graph, weights) {
    const prepareTensor = stored => tensor(
      stored.shape,
      stored.integers ? Int32Array.from(stored.integers)
        : stored.booleans ? Uint8Array.from(stored.booleans)
          : weights.subarray(stored.start, stored.start + product(stored.shape)),
    );
    const prepareAttribute = value => (value.nodes ? prepareGraph(value, weights) : value.shape ? prepareTensor(value) : value);
    const change = (object, convert) => Object.fromEntries(Object.entries(object).map(([name, value]) => [name, convert(value)]));
    return {
      ...graph,
      values: change(graph.values, prepareTensor),
      nodes: graph.nodes.map(([operator, from, to, attributes]) => [operator, from, to, change(attributes, prepareAttribute)]),
    };
  }

  return { prepareGraph, runGraph, tensor };
})();
