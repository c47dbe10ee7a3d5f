"""Training of subword vocabularies: byte-pair encoding and unigram language models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Literal

from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models, pre_tokenizers, trainers

from attnlab.data.tokenization.pipelines import check_texts, make_normalizer, make_pipeline
from attnlab.data.tokenization.tokenizer import CONTINUATION, UNKNOWN, Tokenizer
from attnlab.errors import UserError


def subwords(
    texts: Iterable[str],
    *,
    algorithm: Literal["bpe", "unigram"] = "bpe",
    max_size: int,
    lowercase: bool = False,
    normalization: str | None = None,
    dropout: float = 0.0,
) -> Tokenizer:
    """Train a tokenizer that splits a text into subwords, without splitting it into words first.

    A space is written as `▁` at the start of the next token, and a `▁` is added at the start of each text.
    Decoding restores all spaces, except for one at the very start of a text; a `▁` in the text is decoded as
    a space.

    Args:
        texts: training texts.
        algorithm: "bpe" for byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909), or "unigram" for the
            most likely segmentation under a unigram language model (Kudo 2018, arXiv 1804.10959), where
            adjacent unknown characters are one unknown token.
        max_size: number of subwords, special tokens not counted; fewer if the texts have no more.
        lowercase: convert texts to lower case.
        normalization: Unicode normalisation form: nfc, nfd, nfkc or nfkd; None for none.
        dropout: probability of leaving out each merge of a training text in each epoch; see
            `attnlab.data.tokenization.bpe_dropout`.

    Raises:
        UserError: if there are no texts, `max_size` is smaller than the number of characters in them, or
            `dropout` is not 0 with "unigram".
    """
    if dropout and algorithm != "bpe":
        raise UserError(
            "tokenizer.dropout leaves out merges of byte-pair encoding: set tokenizer.algorithm=bpe"
        )
    normalizer = make_normalizer(normalization, lowercase)
    checked = check_texts(texts if normalizer is None else map(normalizer.normalize_str, texts))
    _check_capacity(max_size, needed=len({"▁"}.union(*checked) - {" "}))
    train = {"bpe": _train_bpe, "unigram": _train_unigram}[algorithm]
    pipeline = make_pipeline(
        train(checked, max_size),
        pre_tokenizers.Metaspace(),
        normalizer=normalizer,
        decoder=decoders.Metaspace(),
    )
    return Tokenizer(pipeline, dropout=dropout)


def _train_bpe(texts: list[str], max_size: int) -> models.Model:
    trainer = trainers.BpeTrainer(vocab_size=max_size + 1, special_tokens=[UNKNOWN], show_progress=False)
    trained = _train_model(models.BPE(unk_token=UNKNOWN), trainer, texts, pre_tokenizers.Metaspace())
    model: models.Model = trained.model
    return model


def _train_unigram(texts: list[str], max_size: int) -> models.Model:
    trainer = trainers.UnigramTrainer(
        vocab_size=max_size + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    trained = _train_model(models.Unigram(), trainer, texts, pre_tokenizers.Metaspace())
    scores = _reproducible_scores(json.loads(trained.to_str())["model"]["vocab"])
    return models.Unigram(scores, unk_id=0)


def train_subwords_of_words(
    untrained: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """Train a vocabulary of subwords, each within one piece."""
    if max_size is None:
        raise UserError("tokenizer.subwords=true requires tokenizer.max_size, the number of subwords")
    pieces = list(chain.from_iterable(map(untrained.pieces, check_texts(texts))))
    characters = {character for piece in pieces for character in piece}
    # Listed explicitly, because the trainer would number them in the random order of a hash table
    continuing = sorted({CONTINUATION + character for piece in pieces for character in piece[1:]})
    _check_capacity(max_size, needed=len(characters) + len(continuing))
    trainer = trainers.BpeTrainer(
        vocab_size=max_size + 1,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *continuing],
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    model = models.BPE(unk_token=UNKNOWN, continuing_subword_prefix=CONTINUATION)
    return untrained.set_model(_train_model(model, trainer, pieces, pre_tokenizer=None).model)


def _train_model(
    model: models.Model,
    trainer: trainers.Trainer,
    texts: list[str],
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
) -> Pipeline:
    """Train a model in a temporary pipeline: after training a pipeline would search raw text for `<unk>`."""
    pipeline = make_pipeline(model, pre_tokenizer)
    pipeline.train_from_iterator(texts, trainer)
    return pipeline


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


def _check_capacity(max_size: int, *, needed: int) -> None:
    """Raise `UserError` if the vocabulary is smaller than the number of characters."""
    if max_size < needed:
        raise UserError(
            f"tokenizer.max_size={max_size} is too small: the training texts have {needed} distinct "
            "characters, and each must be in the vocabulary"
        )
