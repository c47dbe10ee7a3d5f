"""Greedy decoding with ONNX Runtime: one source sentence per line in, one translation per line out.

    python translate.py < sentences.txt

A line of a network with features is TEXT<TAB>FEATURES.

Needs onnxruntime, numpy and tokenizers, and the files that `attnlab export` writes next to this one. The loop
over the graphs is `Translator.decode`. B, S, T and V as in attnlab: sentences, source length, target length
and target vocabulary.
"""

import codecs
import json
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

PAD, SOS, EOS = 0, 1, 2
FEATURE = re.compile(" ?⟨[^⟨⟩ ]+⟩")  # of an inflected form; never copied
SPECIAL = 3  # the ids of the tokenizer files are shifted by the special tokens
BATCH = 64  # lines read together
MAX_PADDED_TOKENS = 2**14  # of a batch; a single sentence may be longer


class Translator:
    """An exported network and its tokenizers.

    Args:
        folder: folder of the export.
        threads: number of CPU threads; 0 for all cores.
    """

    def __init__(self, folder: Path, threads: int = 0) -> None:
        self.config = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        self.source, self.target = (
            Text(folder / f"{side}_tokenizer.json", module=self.config[f"{side}_module"])
            for side in ("source", "target")
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options, ["CPUExecutionProvider"])
            for name in ("encoder", "step")
        )

    def check(self, sentence: str) -> None:
        """Raise `ValueError` if a sentence cannot be translated."""
        length, limit = len(self._source_ids(self._read(sentence))), self.config["max_positions"]
        if limit is not None and length > limit:
            raise ValueError(f"it has {length} tokens, but the network has only {limit} positions")

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        """Translate sentences, in batches of similar length."""
        sentences = [self._read(sentence) for sentence in sentences]
        lengths = [len(self._source_ids(sentence)) for sentence in sentences]
        outputs = [""] * len(sentences)
        for rows in _batches(lengths):
            for row, text in zip(rows, self._translate([sentences[row] for row in rows]), strict=True):
                outputs[row] = text
        return outputs

    def _read(self, sentence: str) -> str:
        """Return a sentence; TEXT<TAB>FEATURES of a network with features as the text and its features.

        Raises:
            ValueError: if there are no features, or a bracket of them has no counterpart.
        """
        if not self.config["reads_features"]:
            return sentence
        text, *columns = sentence.split("\t")
        if len(columns) != 1:
            raise ValueError("expected TEXT<TAB>FEATURES; the features may be empty")
        features = re.findall(r"[()]|[^;,()]+", "".join(columns[0].split()))
        depths = [*accumulate((each == "(") - (each == ")") for each in features)]
        if depths and (min(depths) < 0 or depths[-1]):
            raise ValueError(f"the features {columns[0]!r} have a bracket without a counterpart")
        return " ".join([text, *(f"⟨{each}⟩" for each in features)])

    def _source_ids(self, sentence: str) -> list[int]:
        limit = self.config["max_source_tokens"]  # None: no limit
        return self.source.encode(sentence)[:limit] + ([EOS] if self.config["source_eos"] else [])

    def _translate(self, sentences: Sequence[str]) -> list[str]:
        """Translate one batch of sentences that are read."""
        ids = [self._source_ids(sentence) for sentence in sentences]
        if not self.config["copies_source"]:
            return [self.target.decode(row) for row in self.decode(ids)]
        # A source token that is not in the target vocabulary has an id of its own, from V on
        spellings = [self.source.spell(sentence) for sentence in sentences]
        oov = [
            [
                token
                for token in dict.fromkeys(row)
                if self.target.id_of(token) is None and not FEATURE.fullmatch(token)
            ]
            for row in spellings
        ]
        copied = [  # features have PAD, which is never chosen
            [
                PAD
                if FEATURE.fullmatch(token)
                else self.target.size + new.index(token)
                if token in new
                else self.target.id_of(token)
                for token in row
            ]
            for row, new in zip(spellings, oov, strict=True)
        ]
        limit, end = self.config["max_source_tokens"], [EOS] if self.config["source_eos"] else []
        outputs = self.decode(ids, [row[:limit] + end for row in copied])
        return [self.target.decode(row, new) for row, new in zip(outputs, oov, strict=True)]

    def decode(self, sources: list[list[int]], copied: list[Any] | None = None) -> list[list[int]]:
        """Decode source ids greedily; return the ids of each output, without EOS."""
        memory, mask, keys, *state = self.encoder.run(None, {"source": _pad(sources)})
        fixed = {"memory": memory, "mask": mask, "keys": keys}
        if copied is not None:
            fixed["copy_ids"] = _pad(copied)
        names = [value.name for value in self.step.get_inputs() if value.name not in {"token", *fixed}]
        unknown = self.target.id_of("<unk>")
        token = np.full((len(sources), 1), SOS)  # [B, 1]
        tokens = np.empty((len(sources), 0), dtype=np.int64)  # [B, T]
        while tokens.shape[1] < self.config["max_length"] and not (tokens == EOS).any(axis=1).all():
            inputs = {"token": token, **fixed, **dict(zip(names, state, strict=True))}
            log_probabilities, _weights, *state = self.step.run(None, inputs)  # [B, 1, V], [B, 1, S]
            if copied is not None and unknown is not None:  # a model that copies never outputs UNK
                log_probabilities[..., unknown] = -np.inf
            token = EOS + log_probabilities[..., EOS:].argmax(axis=-1)  # [B, 1]: neither PAD nor SOS
            tokens = np.concatenate([tokens, token], axis=1)
        return [[*row, EOS][: [*row, EOS].index(EOS)] for row in tokens.tolist()]


class Text:
    """A tokenizer: text to ids and back.

    Args:
        path: file of Hugging Face `tokenizers`.
        module: name of a module in the folder whose functions `cut` and `join` split and join texts in place
            of the file; None if there is none.
    """

    def __init__(self, path: Path, *, module: str | None) -> None:
        self.pipeline: Any = Tokenizer.from_file(str(path))
        self.module: Any = module and import_module(module)
        self.size = SPECIAL + self.pipeline.get_vocab_size()
        self.has_whole_words = json.loads(path.read_text(encoding="utf-8"))["model"]["type"] == "WordLevel"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text.

        Raises:
            ValueError: if the text has no tokens, or one that a closed vocabulary lacks.
        """
        if self.id_of("<unk>") is None:
            for piece in self._pieces(text):
                if self.id_of(piece) is None:
                    raise ValueError(f"token {piece!r} is not in the vocabulary")
        ids = self.pipeline.encode(
            self._pieces(text) if self.module else text,
            is_pretokenized=bool(self.module),
            add_special_tokens=False,
        ).ids
        if not ids:
            raise ValueError("the text has no tokens")
        return [SPECIAL + id for id in ids]

    def spell(self, text: str) -> list[str]:
        """Return the spelling of each token of a text, also of unknown words."""
        if self.has_whole_words:
            return self._pieces(text)
        return [self.pipeline.id_to_token(id - SPECIAL) for id in self.encode(text)]

    def id_of(self, token: str) -> int | None:
        """Return the id of a token, or None if it is not in the vocabulary."""
        id = self.pipeline.token_to_id(token)
        return None if id is None else SPECIAL + id

    def decode(self, ids: Sequence[int], oov_tokens: Sequence[str] = ()) -> str:
        """Return the text of ids; `oov_tokens` have the ids from V on."""
        tokens = [
            oov_tokens[id - self.size] if id >= self.size else self.pipeline.id_to_token(id - SPECIAL)
            for id in ids
            if id >= SPECIAL
        ]
        if self.module:
            return str(self.module.join(_whole_words(tokens)))
        decoder = self.pipeline.decoder
        return str(decoder.decode(tokens)) if decoder else " ".join(tokens)

    def _pieces(self, text: str) -> list[str]:
        if self.module:
            return list(self.module.cut(text))
        normalizer = self.pipeline.normalizer
        normalised = normalizer.normalize_str(text) if normalizer else text
        return [piece for piece, _ in self.pipeline.pre_tokenizer.pre_tokenize_str(normalised)]


def _whole_words(subwords: Sequence[str]) -> list[str]:
    """Join subwords that continue a word, which start with ##."""
    words: list[str] = []
    for subword in subwords:
        if words and subword.startswith("##"):
            words[-1] += subword.removeprefix("##")
        else:
            words.append(subword)
    return words


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the positions of sentences of similar length, at most `MAX_PADDED_TOKENS` tokens together."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[row] * (len(batch) + 1) > MAX_PADDED_TOKENS:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


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
        sentences: dict[int, str] = {}
        for number, line in batch:
            try:
                text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).decode().rstrip("\r\n")
                translator.check(text)
            except ValueError as error:  # also UnicodeDecodeError
                print(f"translate.py: line {number}: {error}", file=sys.stderr)
                failed = True
            else:
                sentences[number] = text
        outputs = dict(zip(sentences, translator([*sentences.values()]), strict=True))
        for number, _ in batch:
            print(outputs.get(number, "").replace("\n", "\\n"), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
