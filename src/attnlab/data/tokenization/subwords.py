"""Training of subword models: byte-pair encoding and unigram language models."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer as Pipeline
from tokenizers import models, pre_tokenizers, trainers

from attnlab.data.tokenization.tokenizer import CONTINUATION, UNKNOWN
from attnlab.errors import UserError


def train_bpe(texts: Iterable[str], *, max_size: int) -> models.Model:
    """Train byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909) across the words of a text.

    A space is written as `▁` at the start of the next token.
    """
    _check_capacity(max_size, needed=len({"▁"} | characters(texts) - {" "}))
    trainer = trainers.BpeTrainer(vocab_size=max_size + 1, special_tokens=[UNKNOWN], show_progress=False)
    return _train(models.BPE(unk_token=UNKNOWN), trainer, texts, pre_tokenizers.Metaspace())[0]


def train_unigram(texts: Iterable[str], *, max_size: int) -> models.Model:
    """Train a unigram language model (Kudo 2018, arXiv 1804.10959); it uses the most likely segmentation.

    Adjacent unknown characters are one unknown token.
    """
    _check_capacity(max_size, needed=len({"▁"} | characters(texts) - {" "}))
    trainer = trainers.UnigramTrainer(
        vocab_size=max_size + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    _, trained = _train(models.Unigram(), trainer, texts, pre_tokenizers.Metaspace())
    scores = _reproducible_scores(trained["vocab"])
    return models.Unigram(scores, unk_id=0)


def train_bpe_of_pieces(pieces: Counter[str], *, max_size: int | None, min_frequency: int) -> models.Model:
    """Train byte-pair encoding within counted pieces. A subword that continues one starts with `##`."""
    if max_size is None:
        raise UserError("tokenizer.subwords=true requires tokenizer.max_size, the number of subwords")
    # Listed explicitly, because the trainer would number them in the random order of a hash table
    continuing = sorted({CONTINUATION + character for piece in pieces for character in piece[1:]})
    _check_capacity(max_size, needed=len(characters(pieces)) + len(continuing))
    trainer = trainers.BpeTrainer(
        vocab_size=max_size + 1,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *continuing],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    model = models.BPE(unk_token=UNKNOWN, continuing_subword_prefix=CONTINUATION)
    return _train(model, trainer, pieces.elements(), None)[0]


def _train(
    model: models.Model,
    trainer: trainers.Trainer,
    texts: Iterable[str],
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
) -> tuple[models.Model, Any]:
    """Return a trained model and its JSON values.

    It is trained in a temporary pipeline: after training a pipeline would search raw text for `<unk>`.
    """
    pipeline = Pipeline(model)
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.train_from_iterator(texts, trainer)
    return pipeline.model, json.loads(pipeline.to_str())["model"]


def _reproducible_scores(vocabulary: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Make the trained log-probabilities of a unigram model identical in every run.

    The library sums them in the random order of a hash table, which changes the last digits. Single
    characters that it needs only for coverage get scores 0.0001 apart, from the lowest up, in the same
    random order. Here these characters all get the lowest score, other scores are rounded to four decimals,
    and ties are sorted by spelling.
    """
    scores = {piece: score for piece, score in vocabulary if piece != UNKNOWN}
    lowest = min(scores.values(), default=0.0)
    threshold = lowest + 0.0001 * sum(len(piece) == 1 for piece in scores)
    rounded = {piece: round(lowest if score < threshold else score, 4) for piece, score in scores.items()}
    return [(UNKNOWN, 0.0), *sorted(rounded.items(), key=lambda item: (-item[1], item[0]))]


def characters(texts: Iterable[str]) -> set[str]:
    """Return the distinct characters of texts."""
    distinct: set[str] = set()
    for text in texts:
        distinct.update(text)
    return distinct


def _check_capacity(max_size: int, *, needed: int) -> None:
    if max_size < needed:
        raise UserError(
            f"tokenizer.max_size={max_size} is too small: the training texts have {needed} distinct "
            "characters, and each must be in the vocabulary"
        )
