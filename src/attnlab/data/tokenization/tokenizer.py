"""Trained tokenizers: text to token ids and back, based on Hugging Face `tokenizers`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, pairwise, repeat
from pathlib import Path
from types import ModuleType
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, models
from tokenizers import Tokenizer as Pipeline

from attnlab.errors import UserError
from attnlab.files.digests import file_digest
from attnlab.types import EOS, PAD, SOS

SPECIAL_TOKENS = {PAD: "<pad>", SOS: "<sos>", EOS: "<eos>"}  # Labels of the special tokens, by id
UNKNOWN = "<unk>"
"""Label of a token outside the vocabulary. The text `<unk>` in a corpus is read as this token."""
PARALLELISM = "TOKENIZERS_PARALLELISM"  # Environment variable that the library reads before each call
CONTINUATION = "##"
"""Prefix of a subword that continues a word. A word that starts with it is read as a continuation."""


@contextmanager
def parallel_tokenizers() -> Iterator[None]:
    """Train and encode on all cores inside the block. Otherwise a run uses one, since it forks."""
    before = os.environ.get(PARALLELISM, "false")
    os.environ[PARALLELISM] = "true"
    try:
        yield
    finally:
        os.environ[PARALLELISM] = before


class Rows(NamedTuple):
    """N sequences of token ids, one after the other.

    Attributes:
        tokens: the ids, [sum of the lengths].
        lengths: number of ids of each sequence, [N].
    """

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Rows:
        """Return sequences that are given as lists."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Position after the last id of each sequence, [N]."""
        return np.cumsum(self.lengths)

    def tolist(self) -> list[list[int]]:
        """Return the sequences as lists."""
        tokens, ends = self.tokens.tolist(), self.ends.tolist()
        return [tokens[start:end] for start, end in pairwise([0, *ends])]

    def select(self, numbers: NDArray[np.int64], limit: int | None = None) -> Rows:
        """Return the sequences with these numbers; with a limit, only so many ids of each."""
        lengths = self.lengths[numbers]
        starts = self.ends[numbers] - lengths
        if limit is not None:
            lengths = np.minimum(lengths, limit)
        shifts = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        return Rows(self.tokens[np.arange(len(shifts)) + shifts], lengths)

    def with_first(self, token: int) -> Rows:
        """Return the sequences with an id before each."""
        return Rows(np.insert(self.tokens, self.ends - self.lengths, token), self.lengths + 1)

    def with_last(self, token: int) -> Rows:
        """Return the sequences with an id after each."""
        return Rows(np.insert(self.tokens, self.ends, token), self.lengths + 1)


class Tokenizer:
    """A vocabulary of V ids and the rules that split text into its tokens.

    The special tokens PAD, SOS and EOS have the ids 0 to 2. They are not part of the wrapped pipeline, whose
    own ids are shifted by 3, so that no text is ever encoded as a special token, not even the text `<eos>`.
    `encode` adds no special tokens.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    @property
    def size(self) -> int:
        """V: the number of ids, special tokens included."""
        return len(SPECIAL_TOKENS) + self._pipeline.get_vocab_size()

    @property
    def splits_words(self) -> bool:
        """True if a token may be a part of a word: a subword or a character."""
        return not isinstance(self._pipeline.model, models.WordLevel) or len(self.pieces("word")) > 1

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; raise `UserError` if a closed vocabulary lacks one of its tokens."""
        return self.encode_all([text]).tolist()[0]

    def encode_all(self, texts: Sequence[str]) -> Rows:
        """Return the ids of N texts; `WordEncoder` is faster for many."""
        self._reject_oov_tokens(texts)
        tokens, lengths = Rows.of([encoding.ids for encoding in self._encodings(texts)])
        return Rows(tokens + len(SPECIAL_TOKENS), lengths)

    def decode(self, ids: Iterable[int], oov_tokens: Sequence[str] = ()) -> str:
        """Return the text of token ids, without special tokens.

        Encoding and decoding a text gives `clean(text)`, except for tokens outside the vocabulary, which
        become `<unk>`.

        Args:
            oov_tokens: tokens with the ids V, V + 1, …, which a model copied from its source.
        """
        return self._join([self._spelling(id, oov_tokens) for id in ids if id not in SPECIAL_TOKENS])

    def tokens(self, ids: Iterable[int], oov_tokens: Sequence[str] = ()) -> list[str]:
        """Return a readable label for each id; a token of white space is shown as `␣`."""
        return [self._label(SPECIAL_TOKENS.get(id) or self._spelling(id, oov_tokens)) for id in ids]

    def labels(self, ids: Sequence[int], text: str, oov_tokens: Sequence[str] = ()) -> list[str]:
        """Return `tokens` of the ids of a text, where a token outside the vocabulary is `<unk:SPELLING>`."""
        tokens = self.tokens(ids, oov_tokens)
        if UNKNOWN not in tokens:
            return tokens
        return [
            f"{UNKNOWN[:-1]}:{self._label(spelling)}>" if token == UNKNOWN != spelling else token
            for token, spelling in zip(tokens, chain(self.spell(text), repeat(UNKNOWN)), strict=False)
        ]

    def clean(self, text: str) -> str:
        """Return the text that encoding and decoding gives if all its tokens are in the vocabulary."""
        return self._join(self.pieces(text))

    def normalise(self, text: str) -> str:
        """Return a text as it is before it is split: in a Unicode form or lower case, if these are set."""
        normalizer = self._pipeline.normalizer
        return normalizer.normalize_str(text) if normalizer else text

    def pieces(self, text: str) -> list[str]:
        """Split a text into words or characters, before the vocabulary is applied."""
        pieces = self._pipeline.pre_tokenizer.pre_tokenize_str(self.normalise(text))
        return [piece for piece, _ in pieces]

    def spell(self, text: str) -> list[str]:
        """Return the spelling of each token of a text, also of unknown words, not of unknown subwords."""
        if isinstance(self._pipeline.model, models.WordLevel):
            return self.pieces(text)
        return [self._spelling(id) for id in self.encode(text)]

    def words(self, text: str) -> list[int]:
        """Return for each token of a text the number of its word, from 0; white space separates words."""
        last = max(len(text.split()) - 1, 0)
        numbers = [len(text[: i + 1].split()) - 1 + text[i].isspace() for i in range(len(text))]
        return [min(numbers[end - 1], last) for _, end in self._pipeline.encode(text).offsets]

    def to_json(self) -> str:
        """Return the complete tokenizer as JSON."""
        return self._pipeline.to_str()

    @property
    def digest(self) -> str:
        """SHA-256 of all that the ids of a text depend on."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """Return the tokenizer of a `to_json` text. The module of a custom class must have been imported."""
        content = json.loads(text)
        if len(content) > 1:
            return cls(Pipeline.from_str(text))
        ((key, pipeline),) = content.items()
        if key in MODULES:
            import_module(MODULES[key])
        if key not in _PRESPLIT:
            raise UserError(f"the tokenizer {key!r} is unknown: import the module of its class first")
        return _PRESPLIT[key](Pipeline.from_str(pipeline))

    def extended(self, other: Tokenizer) -> Tokenizer:
        """Return this tokenizer with the tokens that only another one has appended to its vocabulary.

        A vocabulary of subwords cannot be extended, since its tokens depend on each other: it stays as it is.
        If the two tokenizers split text by different rules, `ValueError` is raised.
        """
        ours, theirs = (json.loads(tokenizer._pipeline.to_str()) for tokenizer in (self, other))
        models = ours.pop("model"), theirs.pop("model")
        if type(self) is not type(other) or ours != theirs or models[0]["type"] != models[1]["type"]:
            raise ValueError("the tokenizers split text differently")
        if models[0]["type"] != "WordLevel":
            return self
        vocabulary = models[0]["vocab"]
        added = sorted(models[1]["vocab"].keys() - vocabulary.keys(), key=models[1]["vocab"].__getitem__)
        vocabulary |= {token: len(vocabulary) + i for i, token in enumerate(added)}
        return type(self)(Pipeline.from_str(json.dumps({**ours, "model": models[0]})))

    def id_of(self, piece: str) -> int | None:
        """Return the id of a token, or None if it is not in the vocabulary."""
        id = self._pipeline.token_to_id(piece)
        return None if id is None else len(SPECIAL_TOKENS) + id

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        return self._pipeline.encode_batch_fast(texts)

    def _label(self, spelling: str) -> str:
        return "␣" if spelling.isspace() else spelling

    def _spelling(self, id: int, oov_tokens: Sequence[str] = ()) -> str:
        spelling: str | None = self._pipeline.id_to_token(id - len(SPECIAL_TOKENS))
        if spelling is not None:
            return spelling
        if not oov_tokens:
            raise IndexError(f"token id {id} is out of range for a vocabulary of {self.size}")
        return oov_tokens[id - self.size]

    def _join(self, pieces: list[str]) -> str:
        decoder = self._pipeline.decoder
        return decoder.decode(pieces) if decoder else " ".join(pieces)

    def _reject_oov_tokens(self, texts: Sequence[str]) -> None:
        """Raise `UserError` if a white-space separated token is not in a closed vocabulary."""
        if self._pipeline.token_to_id(UNKNOWN) is not None:
            return
        vocabulary = self._pipeline.get_vocab()
        for piece in dict.fromkeys(chain.from_iterable(map(str.split, texts))):
            if piece not in vocabulary:
                symbols = sorted(vocabulary, key=vocabulary.__getitem__)
                raise UserError(
                    f"token {piece!r} is not in the vocabulary {symbols[0]} … {symbols[-1]}. Use only these "
                    "symbols, separated by spaces"
                )


class PresplitTokenizer(Tokenizer):
    """Base of tokenizers whose texts are split and joined by a Python module in place of the pipeline.

    A subclass defines both attributes, and is known by its `KEY` once its module is imported.

    Attributes:
        KEY: key of the pipeline in the JSON text.
        module: its function `cut` splits a text into pieces, and `join` returns the text of any pieces.
    """

    KEY: ClassVar[str]
    module: ClassVar[ModuleType]

    def __init_subclass__(cls) -> None:
        _PRESPLIT[cls.KEY] = cls

    def pieces(self, text: str) -> list[str]:
        return [*self.module.cut(text)]

    def words(self, text: str) -> list[int]:
        """Return for each token of a text the number of its piece, from 0."""
        numbers = self._pipeline.encode(self.pieces(text), is_pretokenized=True).word_ids
        return [number for number in numbers if number is not None]

    def to_json(self) -> str:
        return json.dumps({self.KEY: super().to_json()})

    @property
    def digest(self) -> str:
        """SHA-256 of all that the ids of a text depend on, with the code of `module` if it is a file."""
        path = getattr(self.module, "__file__", None)
        code = file_digest(Path(path)) if path else ""
        return hashlib.sha256(f"{self.to_json()}{code}".encode()).hexdigest()

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        pieces = [self.pieces(text) for text in texts]
        return self._pipeline.encode_batch_fast(pieces, is_pretokenized=True)

    def _join(self, pieces: list[str]) -> str:
        whole: list[str] = []
        for piece in pieces:
            if whole and piece.startswith(CONTINUATION):
                whole[-1] += piece.removeprefix(CONTINUATION)
            else:
                whole.append(piece)
        return str(self.module.join(whole))


_PRESPLIT: dict[str, type[PresplitTokenizer]] = {}  # Classes of `PresplitTokenizer` by their keys

MODULES = {"python": "attnlab.data.conala.tokenizer"}
"""Modules that are imported for a `PresplitTokenizer.KEY`."""
