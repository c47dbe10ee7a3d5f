"use strict";
/* The tokenizers of a run, as `attnlab.deploy.export.page_tokenizer` describes them: text to ids and back.
   Ids of the vocabulary start at 3, after PAD, SOS and EOS. */

const SPECIAL = 3, UNKNOWN = "<unk>", CONTINUATION = "##", SPACE = "▁";

function makeTokenizer({ normalize, split, model, join }) {
  const pieces = model.vocabulary, ids = new Map(pieces.map((piece, id) => [piece, id]));
  const unknown = ids.get(UNKNOWN);
  const ranks = new Map((model.merges || []).map(([left, right], rank) => [`${left} ${right}`, rank]));
  // Not Math.max(...values): a function takes no more than some 100,000 arguments
  const longest = pieces.reduce((most, piece) => Math.max(most, [...piece].length), 0);
  const scores = model.scores, lowest = scores && scores.reduce((least, score) => Math.min(least, score)) - 10;

  const steps = {
    form: (text, form) => text.normalize(form),
    lowercase: text => Array.from(text, character => character.toLowerCase()).join(""), // by character: no final sigma
    replace: (text, pattern, content) => text.replace(new RegExp(pattern, "gu"), () => content),
    replaceText: (text, pattern, content) => text.split(pattern).join(content),
    strip: (text, left, right) => {
      const trimmed = left ? text.replace(/^\p{White_Space}+/u, "") : text;
      return right ? trimmed.replace(/\p{White_Space}+$/u, "") : trimmed;
    },
  };
  const splits = {
    space: text => text.split(/\p{White_Space}+/u).filter(Boolean),
    isolate: (text, pattern) => {
      const parts = [];
      let end = 0;
      for (const match of text.matchAll(new RegExp(pattern, "gu"))) {
        parts.push(text.slice(end, match.index), match[0]);
        end = match.index + match[0].length;
      }
      return [...parts, text.slice(end)].filter(Boolean);
    },
    metaspace: text => {
      if (!text) return [];
      const marked = text.replaceAll(" ", SPACE);
      return (marked.startsWith(SPACE) ? marked : SPACE + marked).split(new RegExp(`(?=${SPACE})`, "u"));
    },
  };

  function cut(text) {
    const normalised = normalize.reduce((current, [name, ...settings]) => steps[name](current, ...settings), text);
    return split.reduce((parts, [name, ...settings]) => parts.flatMap(part => splits[name](part, ...settings)), [normalised]);
  }
  function mergePairs(piece) {
    const prefix = model.prefix || "";
    const parts = Array.from(piece, (character, place) => (place ? prefix + character : character)).map(part => (ids.has(part) ? part : UNKNOWN));
    for (;;) {
      let best = Infinity, at = -1;
      for (let k = 0; k + 1 < parts.length; k++) {
        const rank = ranks.get(`${parts[k]} ${parts[k + 1]}`);
        if (rank < best) [best, at] = [rank, k];
      }
      if (at < 0) return parts;
      parts.splice(at, 2, parts[at] + parts[at + 1].slice(prefix.length));
    }
  }
  function likeliest(piece) {
    const characters = Array.from(piece), best = [{ score: 0 }];
    for (let start = 0; start < characters.length; start++) {
      const extend = (end, token, score) => {
        const total = best[start].score + score;
        if (!best[end] || total > best[end].score) best[end] = { score: total, start, token };
      };
      let covered = false;
      for (let end = start + 1; end <= Math.min(characters.length, start + longest); end++) {
        const token = characters.slice(start, end).join("");
        if (!ids.has(token)) continue;
        extend(end, token, scores[ids.get(token)]);
        covered ||= end === start + 1;
      }
      if (!covered) extend(start + 1, UNKNOWN, lowest);
    }
    const tokens = [];
    for (let end = characters.length; end > 0; end = best[end].start) tokens.unshift(best[end].token);
    return tokens.filter((token, k) => token !== UNKNOWN || tokens[k - 1] !== UNKNOWN); // adjacent ones are one
  }
  const encodings = { words: piece => [piece], merges: mergePairs, scores: likeliest };

  const joins = {
    space: tokens => tokens.join(" "),
    nothing: tokens => tokens.join(""),
    words: tokens => tokens.map((token, k) => (k && !token.startsWith(CONTINUATION) ? ` ${token}` : k ? token.slice(CONTINUATION.length) : token)).join(""),
    metaspace: tokens => tokens.join("").replaceAll(SPACE, " ").replace(/^ /, ""),
  };
  const spelling = (id, copied) => (id - SPECIAL < pieces.length ? pieces[id - SPECIAL] : copied[id - SPECIAL - pieces.length]);

  return {
    size: SPECIAL + pieces.length,
    isClosed: unknown === undefined,
    pieces,
    idOf: token => (ids.has(token) ? SPECIAL + ids.get(token) : undefined),
    /* The tokens of a text: their spelling, also of unknown words, and their ids (undefined in a closed vocabulary). */
    encode: text => cut(text).flatMap(piece => encodings[model.type](piece)).map(token => ({
      token,
      id: SPECIAL + (ids.get(token) ?? unknown),
      isKnown: ids.has(token) && token !== UNKNOWN,
    })),
    decode: (tokens, copied) => joins[join](tokens.filter(id => id >= SPECIAL).map(id => spelling(id, copied))),
    label: (id, copied) => {
      const token = id < SPECIAL ? ["<pad>", "<sos>", "<eos>"][id] : spelling(id, copied);
      return /^\s+$/.test(token) ? "␣" : token;
    },
  };
}
