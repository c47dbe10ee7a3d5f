"""BPE dropout (Provilkov et al. 2020, arXiv 1910.13267): random segmentations of training texts.

A text is segmented as by byte-pair encoding, but before each merge every applicable merge is left out with a
given probability. The draws depend only on the seed, the epoch, the side and the position of the sentence in
the training split, so that a resumed training sees the same segmentations.
"""

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from math import inf

import numpy as np
import torch

from attnlab.data.corpus import Pair
from attnlab.data.examples import Examples, Sequences, text_limits
from attnlab.data.tokenization.tokenizer import SPECIAL_TOKENS, UNKNOWN, Tokenizer
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, SOS, Batch


class Segmenter:
    """Random segmentation of texts with the merges of a trained tokenizer.

    Args:
        tokenizer: a tokenizer with a BPE model; its `dropout` is the probability of leaving out a merge.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        model = json.loads(tokenizer.to_json()).get("model", {})
        if model.get("type") != "BPE":
            raise UserError(
                "tokenizer.dropout needs a tokenizer with byte-pair encoding, such as tokenizer=subwords"
            )
        self._tokenizer = tokenizer
        self._prefix = model["continuing_subword_prefix"] or ""
        self._ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._ids = {token: id + len(SPECIAL_TOKENS) for token, id in model["vocab"].items()}

    def encode(self, text: str, draws: random.Random) -> list[int]:
        """Return the ids of a random segmentation of a text."""
        unknown = self._ids[UNKNOWN]
        pieces = self._tokenizer.pieces(text)
        return [self._ids.get(symbol, unknown) for piece in pieces for symbol in self._segment(piece, draws)]

    def _segment(self, piece: str, draws: random.Random) -> list[str]:
        """Merge the characters of a piece until no applicable merge is left or all are left out."""
        symbols = [piece[:1], *(f"{self._prefix}{character}" for character in piece[1:])]
        dropout, ranks, prefix = self._tokenizer.dropout, self._ranks, len(self._prefix)
        while True:
            candidates = [
                (rank, place)
                for place, pair in enumerate(pairwise(symbols))
                if (rank := ranks.get(pair)) is not None and draws.random() >= dropout
            ]
            if not candidates:
                return symbols
            _, place = min(candidates)
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1][prefix:]]


class SampledExamples(Examples):
    """The encoded pairs of the training split with BPE dropout.

    Indexing with (epoch, B positions) returns a `Batch` with the segmentations of the epoch, whose longest
    target comes first. Lengths and indexing with positions alone are those without dropout.

    Args:
        examples: the pairs encoded without dropout.
        pairs: the same pairs as text.
        vocabularies: tokenizers of both sides; one without dropout gives the same ids in every epoch.
        positions: largest S and T. A longer segmentation is replaced by that without dropout.
    """

    def __init__(
        self,
        examples: Examples,
        pairs: Sequence[Pair],
        vocabularies: Vocabularies,
        *,
        source_eos: bool,
        max_source_length: int | None,
        max_target_length: int | None,
        seed: int,
        positions: tuple[float, float] = (inf, inf),
    ) -> None:
        super().__init__(examples.sources, examples.targets)
        self.pairs = pairs
        self._segmenters = [Segmenter(side) if side.dropout > 0 else None for side in vocabularies]
        self._source_eos = source_eos
        self._limits = text_limits(source_eos, max_source_length, max_target_length)
        self._seed = seed
        self._positions = positions

    def __getitem__(self, indices: list[int] | tuple[int, list[int]]) -> Batch:
        if isinstance(indices, list):
            return super().__getitem__(indices)
        epoch, positions = indices
        targets = [self._ids(1, epoch, index) for index in positions]
        order = np.argsort([-len(target) for target in targets], kind="stable").tolist()
        positions = [positions[i] for i in order]
        everything = list(range(len(order)))
        sources = [self._ids(0, epoch, index) for index in positions]
        source, source_lengths = Sequences.from_rows(sources).padded(everything)
        target, _ = Sequences.from_rows([targets[i] for i in order]).padded(everything)
        return Batch(source, source_lengths, target, torch.tensor(positions), None)

    def _ids(self, side: int, epoch: int, index: int) -> list[int]:
        """Return the ids of the source (side 0) or target (side 1) of a pair in an epoch."""
        segmenter, pair = self._segmenters[side], self.pairs[index]
        undropped = (self.sources, self.targets)[side].row(index)
        if segmenter is None:
            return undropped
        draws = random.Random(f"{self._seed} {epoch} {side} {index}")
        ids = segmenter.encode((pair.source, pair.target)[side], draws)[: self._limits[side]]
        ids = [SOS, *ids, EOS] if side == 1 else [*ids, *[EOS] * self._source_eos]
        return ids if len(ids) - side <= self._positions[side] else undropped  # T does not count SOS
