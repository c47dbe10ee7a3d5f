"""Parts of all tokenizers: pipelines of Hugging Face `tokenizers`, normalisation, the check of the texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models, normalizers, pre_tokenizers

from attnlab.errors import UserError

NORMALIZATIONS = {
    "nfc": normalizers.NFC,
    "nfd": normalizers.NFD,
    "nfkc": normalizers.NFKC,
    "nfkd": normalizers.NFKD,
}
"""Unicode normalisation forms by the name of their setting."""


def make_pipeline(
    model: models.Model,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    """Return a pipeline of the library with these parts."""
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.decoder = decoder
    return pipeline


def make_normalizer(
    normalization: str | None, lowercase: bool, more: Sequence[normalizers.Normalizer] = ()
) -> normalizers.Normalizer | None:
    """Return the normaliser of texts; None if nothing is to be done.

    Raises:
        UserError: if the normalisation form is unknown.
    """
    if normalization not in (None, *NORMALIZATIONS):
        raise UserError(
            f"tokenizer.normalization={normalization} must be one of {', '.join(NORMALIZATIONS)}, or null"
        )
    steps = [NORMALIZATIONS[normalization]()] if normalization else []
    steps += [normalizers.Lowercase()] if lowercase else []
    steps += more
    return normalizers.Sequence(steps) if steps else None


def check_texts(texts: Iterable[str]) -> list[str]:
    """Return the texts as a list, or raise `UserError` if there are none."""
    checked = list(texts)
    if not checked:
        raise UserError("the tokenizer cannot be trained: the training split is empty")
    return checked
