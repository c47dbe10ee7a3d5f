"""Words that the training files contain, and symbols that they lack."""

from collections import Counter, defaultdict
from dataclasses import replace

from attnlab.api.evaluation_data import layout_of
from attnlab.data.corpus import Pair
from attnlab.data.datasets.pair_files import Layout
from attnlab.data.tokenization.tokenizer import UNKNOWN, Tokenizer
from attnlab.errors import UserError
from attnlab.files.predictions import Prediction
from attnlab.training.model import Model

PREFIX = f"{UNKNOWN[:-1]}:"
"""Start of the label of a source token outside the vocabulary; its spelling follows."""


def read_lexicon(model: Model, path: str) -> dict[str, tuple[str, float]]:
    """Return the most frequent target of each source of a file with the columns of the training file.

    Of equally frequent targets it is the first. The keys are sources as the source tokenizer normalises them;
    beside each target is its share of those of the source.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    layout = layout_of(model.config) or Layout()
    for pair in layout.read(path, setting="--lexicon").pairs:
        counts[model.vocabularies.source.normalise(pair.source)][pair.target] += 1
    lexicon = {}
    for source, targets in counts.items():
        ((target, count),) = targets.most_common(1)
        lexicon[source] = target, count / targets.total()
    return lexicon


def without_unknown(pair: Pair, tokenizer: Tokenizer) -> Pair:
    """Return a pair without the symbols of its source that are outside the vocabulary."""
    ids, unknown = tokenizer.encode(pair.source), tokenizer.id_of(UNKNOWN)
    if unknown not in ids:
        return pair
    source = tokenizer.decode(id for id in ids if id != unknown)
    if not source.strip():
        raise UserError("no symbol of it is in the vocabulary, so that --unknown skip leaves nothing")
    return replace(pair, source=source)


def fill_unknown(
    prediction: Prediction, pair: Pair, tokenizer: Tokenizer, mark: str | None = None
) -> Prediction:
    """Replace the outputs for unknown source symbols by the symbols (Luong et al. 2015, arXiv 1410.8206).

    The output for a symbol is the run of tokens whose attention weights are largest there.

    Args:
        pair: the pair that was decoded, whose `postprocess` the new text passes as well.
        mark: text in place of the symbols; None for the symbols themselves.
    """
    if not any(token.startswith(PREFIX) for token in prediction.source_tokens):
        return prediction
    if prediction.weights is None or not prediction.weights.any():
        raise UserError("--unknown copy and mark need attention weights, which this model lacks: use skip")
    ids = {label: id for id, label in reversed([*enumerate(tokenizer.tokens(range(tokenizer.size)))])}
    columns = prediction.weights[:-1].argmax(axis=1).tolist()
    filled: list[int] = []
    spellings: list[str] = []
    for row, (token, column) in enumerate(zip(prediction.tokens, columns, strict=False)):
        source = prediction.source_tokens[column]
        if source.startswith(PREFIX):
            if row and columns[row - 1] == column:
                continue
            spellings.append(source[len(PREFIX) : -1] if mark is None else mark)
        elif token in ids:
            filled.append(ids[token])
            continue
        else:  # it was copied from the source
            spellings.append(token)
        filled.append(tokenizer.size + len(spellings) - 1)
    text = tokenizer.decode(filled, spellings)
    return replace(prediction, hypothesis=pair.postprocess(text) if pair.postprocess else text)
