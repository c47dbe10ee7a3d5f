"""Greedy decoding with ONNX Runtime: one source sentence per line in, one translation per line out.

    python translate.py < sentences.txt

Of a network that was trained on tables, a line can be a row of such a table, with or without the target, or
the text alone; with features, it is TEXT<TAB>FEATURES or such a row.

Needs onnxruntime, numpy and tokenizers, and the files that `attnlab export` writes next to this one. The loop
over the graphs is `Translator._decode`. B, S, T and V as in attnlab: sentences, source length, target length
and target vocabulary.
"""

import codecs
import json
import re
import sys
from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

PAD, SOS, EOS = 0, 1, 2
FEATURE = re.compile(" ?⟨[^⟨⟩ ]+⟩")  # of an inflected form; never copied
SPECIAL = 3  # the ids of the tokenizer files are shifted by the special tokens
BATCH = 32  # lines decoded together


class Sentence(NamedTuple):
    """A source as the graphs read it."""

    ids: list[int]  # S source ids
    copy_ids: list[int]  # S target ids; those of `oov` are counted from V on. Empty if nothing is copied
    oov: list[str]  # source tokens that the target vocabulary lacks


class Translator:
    """An exported network and its tokenizers.

    Args:
        folder: folder of the export.
        threads: number of CPU threads; 0 for all cores.
    """

    def __init__(self, folder: Path, threads: int = 0) -> None:
        self.config = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        self.source, self.target = (Text(folder / f"{side}_tokenizer.json") for side in ("source", "target"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options, ["CPUExecutionProvider"])
            for name in ("encoder", "step")
        )

    def read(self, line: str) -> Sentence:
        """Return a sentence; raise `ValueError` if it cannot be translated."""
        text = line if self.config["columns"] is None else self._read_row(line.split("\t"))
        cut, end = self.config["max_source_tokens"], [EOS] if self.config["source_eos"] else []
        ids, limit = self.source.encode(text)[:cut] + end, self.config["max_positions"]
        if limit is not None and len(ids) > limit:
            raise ValueError(f"it has {len(ids)} tokens, but the network has only {limit} positions")
        if not self.config["copies_source"]:
            return Sentence(ids, [], [])
        tokens = ["" if FEATURE.fullmatch(token) else token for token in self.source.spell(text)]
        known = {token: self.target.id_of(token) for token in tokens}
        oov = [token for token, id in known.items() if token and id is None]
        new = {"": PAD, **{token: self.target.size + place for place, token in enumerate(oov)}}
        copied = [
            new[token] if (id := known[token]) is None else id for token in tokens
        ]  # PAD is never chosen
        return Sentence(ids, copied[:cut] + end, oov)

    def _read_row(self, cells: list[str]) -> str:
        """Return the text of a row, followed by its features if the network reads some."""
        columns, target = self.config["columns"], self.config["target_column"]
        if len(cells) <= len(columns):
            columns = range(len(cells))
        elif len(cells) <= max(*columns, target):  # there is no column of the target
            columns = [column - (column > target) for column in columns]
        if max(columns) >= len(cells):
            raise ValueError(f"it has {len(cells)} columns, and column {max(columns)} (from 0) is read")
        text: str = cells[columns[0]]
        features = [cells[column] for column in columns[1:]]
        if len(self.config["columns"]) == 1:
            return text
        if not features:
            raise ValueError("expected TEXT<TAB>FEATURES; the features may be empty")
        if not text.strip():
            raise ValueError("the text is empty")
        return _with_features(text, ";".join(features))

    def translate(self, sentences: Sequence[Sentence]) -> list[str]:
        """Decode sentences of `read` together; return their translations."""
        outputs = self._decode(sentences) if sentences else []
        return [self.target.decode(row, each.oov) for row, each in zip(outputs, sentences, strict=True)]

    def _decode(self, sentences: Sequence[Sentence]) -> list[list[int]]:
        """Decode greedily; return the ids of each output, without EOS."""
        memory, mask, keys, *state = self.encoder.run(None, {"source": _pad([s.ids for s in sentences])})
        fixed = {"memory": memory, "mask": mask, "keys": keys}
        if self.config["copies_source"]:
            fixed["copy_ids"] = _pad([sentence.copy_ids for sentence in sentences])
        names = [value.name for value in self.step.get_inputs() if value.name not in {"token", *fixed}]
        unknown = self.target.id_of("<unk>")
        token = np.full((len(sentences), 1), SOS)  # [B, 1]
        tokens = np.empty((len(sentences), 0), dtype=np.int64)  # [B, T]
        while tokens.shape[1] < self.config["max_length"] and not (tokens == EOS).any(axis=1).all():
            inputs = {"token": token, **fixed, **dict(zip(names, state, strict=True))}
            log_probabilities, _weights, *state = self.step.run(None, inputs)  # [B, 1, V], [B, 1, S]
            if self.config["copies_source"] and unknown is not None:  # it can copy the unknown words instead
                log_probabilities[..., unknown] = -np.inf
            token = EOS + log_probabilities[..., EOS:].argmax(axis=-1)  # [B, 1]: neither PAD nor SOS
            tokens = np.concatenate([tokens, token], axis=1)
        return [[*row, EOS][: [*row, EOS].index(EOS)] for row in tokens.tolist()]


class Text:
    """A tokenizer, from a file of Hugging Face `tokenizers`: text to ids and back."""

    def __init__(self, path: Path) -> None:
        self.pipeline: Any = Tokenizer.from_file(str(path))
        self.size = SPECIAL + self.pipeline.get_vocab_size()
        self.has_whole_words = json.loads(path.read_text(encoding="utf-8"))["model"]["type"] == "WordLevel"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; raise `ValueError` if there are none, or one is not in the vocabulary."""
        if self.id_of("<unk>") is None:
            for piece in self.spell(text):
                if self.id_of(piece) is None:
                    raise ValueError(f"token {piece!r} is not in the vocabulary")
        ids = self.pipeline.encode(text, add_special_tokens=False).ids
        if not ids:
            raise ValueError("the text has no tokens")
        return [SPECIAL + id for id in ids]

    def spell(self, text: str) -> list[str]:
        """Return the spelling of each token of a text, also of unknown words."""
        if not self.has_whole_words:
            return list(self.pipeline.encode(text, add_special_tokens=False).tokens)
        normalizer = self.pipeline.normalizer
        normalised = normalizer.normalize_str(text) if normalizer else text
        return [piece for piece, _ in self.pipeline.pre_tokenizer.pre_tokenize_str(normalised)]

    def id_of(self, token: str) -> int | None:
        """Return the id of a token, or None if it is not in the vocabulary."""
        id = self.pipeline.token_to_id(token)
        return None if id is None else SPECIAL + id

    def decode(self, ids: Sequence[int], oov: Sequence[str] = ()) -> str:
        """Return the text of ids; those of `oov` are counted from V on."""
        tokens = [
            oov[id - self.size] if id >= self.size else self.pipeline.id_to_token(id - SPECIAL)
            for id in ids
            if id >= SPECIAL
        ]
        decoder = self.pipeline.decoder
        return str(decoder.decode(tokens)) if decoder else " ".join(tokens)


def _with_features(text: str, column: str) -> str:
    """Return a text followed by its features."""
    features = re.findall(r"[()]|[^;,()]+", "".join(column.split()))
    depths = [*accumulate((each == "(") - (each == ")") for each in features)]
    if depths and (min(depths) < 0 or depths[-1]):
        raise ValueError(f"the features {column!r} have a bracket without a counterpart")
    return " ".join([text, *(f"⟨{each}⟩" for each in features)])


def _pad(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Pad rows of ids to an array [B, S]."""
    width = max(map(len, rows))
    return np.array([[*row, *[PAD] * (width - len(row))] for row in rows], dtype=np.int64)


def main() -> int:
    """Translate standard input to standard output; a line that cannot be translated gives an empty one."""
    translator = Translator(Path(__file__).parent)
    lines = enumerate(sys.stdin.buffer, start=1)
    failed = False
    while batch := list(islice(lines, BATCH)):
        sentences: dict[int, Sentence] = {}
        for number, line in batch:
            try:
                text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode().rstrip("\r\n")
                if text.strip() or translator.config["columns"] is None:  # tables can have empty lines
                    sentences[number] = translator.read(text)
            except ValueError as error:  # also UnicodeDecodeError
                print(f"translate.py: line {number}: {error}", file=sys.stderr)
                failed = True
        outputs = dict(zip(sentences, translator.translate([*sentences.values()]), strict=True))
        for number, _ in batch:
            print(outputs.get(number, "").replace("\n", "\\n"), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
