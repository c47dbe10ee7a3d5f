"""CoNaLa: English intents and the Python snippets that implement them (Yin et al. 2018, arXiv 1805.08949).

The annotated corpus was collected from Stack Overflow (CC BY-SA 4.0): 2,379 training and 500 test examples.
The archive also contains automatically mined pairs, which `data.path` can read.
"""

import hashlib
import json
import logging
import re
import sys
import zipfile
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from annotated_types import Ge, Lt
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from attnlab.data.conala import placeholders
from attnlab.data.conala.python_code import cut
from attnlab.data.corpus import Corpus, Origin, Pair
from attnlab.data.splitting import split
from attnlab.errors import UserError
from attnlab.files.reading import SURROGATE, decode, read_text, split_lines
from attnlab.settings import Count, FilePath, FolderPath, Fraction, PositiveFraction, Probability, Size

log = logging.getLogger(__name__)

URL = "http://www.phontron.com/download/conala-corpus-v1.1.zip"
TRAIN_MEMBER = "conala-corpus/conala-train.json"
TEST_MEMBER = "conala-corpus/conala-test.json"
TRAIN_MD5 = "3c339ac6a45566f70a2a74db1ef3cc3a"

FIELDS = ("intent", "rewritten_intent", "snippet", "question_id")
METRICS = ("conala_bleu", "conala_exact_match", "parses", "slot_accuracy")
"""Metrics computed for prepared pairs, in addition to the default metrics."""


DEFAULT_SEED, DEFAULT_VAL_FRACTION = 0, 0.1
"""The default development split, on which earlier runs made their choices: it is not held out."""

HELD_OUT_THRESHOLD = 0.8  # Near-duplicate threshold of the held-out split, the same for every configuration
BLOCK = 1000  # Intents or snippets that are compared with all others at a time

Tokens = frozenset[str]
QUOTES = str.maketrans("‘’“”", "''\"\"")
WHITE_SPACE_OR_WORD = re.compile(rf"{placeholders.SPAN.pattern}|(?P<word>\b[A-Z][a-z]*\b)|\s+", re.DOTALL)


def normalise(intent: str) -> str:
    """Return the intent in a uniform spelling.

    Typographic quotation marks become ASCII, a run of white space becomes one space, and punctuation at the
    end is removed. Words with only an initial capital are lower-cased: "Sort" and "I", but not "DataFrame" or
    "CSV", which may be names. Quoted texts are not changed.
    """

    def normalised(match: re.Match[str]) -> str:
        if match["word"]:
            return match["word"].lower()
        return " " if match[0].isspace() else match[0]

    plain = WHITE_SPACE_OR_WORD.sub(normalised, intent.translate(QUOTES).strip())
    return plain.rstrip(" .?!:;,") or plain


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """Conversion of an intent and its snippet to the pair that the network reads.

    Args:
        normalise: normalise the spelling of intents.
        slots: replace what the intent quotes by placeholders, in both texts; the pair's post-processing
            restores them.
    """

    normalise: bool = True
    slots: bool = False

    def __call__(self, intent: str, snippet: str = "") -> Pair:
        """Return the pair, whose reference is the raw snippet."""
        source = normalise(intent) if self.normalise else intent
        pair = Pair(
            source, snippet, reference=snippet, annotations={"quoted": placeholders.quoted_texts(source)}
        )
        if not self.slots:
            return pair
        source, replaced = placeholders.replace_in_intent(source)
        return replace(
            pair,
            source=source,
            target=placeholders.replace_in_code(snippet, replaced),
            postprocess=placeholders.RestorePlaceholders(replaced),
            excludes=placeholders.unused_in(source),
        )


class Example(NamedTuple):
    """One example of a CoNaLa file."""

    intent: str
    rewritten_intent: str | None
    snippet: str
    question_id: int | str
    origin: Origin | None = None
    probability: float = 1.0  # that the snippet implements the intent, of a mined example

    @property
    def question(self) -> str:
        """The rewritten intent, or the original intent if there is none."""
        return self.rewritten_intent or self.intent


def load_conala(
    *,
    path: FilePath | None = None,
    test: FilePath | None = None,
    cache: FolderPath,
    url: str = URL,
    train_md5: str | None = TRAIN_MD5,
    val_fraction: Fraction = 0.1,
    group_by_question: bool = True,
    near_duplicates: PositiveFraction | None = 0.8,
    keep_unrewritten: bool = True,
    max_tokens: Size | None = None,
    min_probability: Probability = 0.0,
    preparation: Preparation | None,
    held_out_fraction: Annotated[float, Ge(0), Lt(0.9)] = 0.0,
    score_held_out: bool = False,
    seed: Count = 0,
) -> Corpus:
    """Load the annotated corpus and split a validation set off its training file.

    Args:
        path: training file, a JSON list or the JSON lines of the mined examples. None: the official archive
            is downloaded to `cache`, and its test file is the test split.
        test: test file (JSON). It replaces the test file of the archive; without it a corpus from
            `path` has no test split. The whole file is used, so that scores are comparable with published
            ones.
        cache: folder of downloaded files.
        url: address of the archive.
        train_md5: MD5 of the training file in the archive; None to accept another edition.
        val_fraction: share of the training file in the validation split.
        group_by_question: keep all examples of one Stack Overflow question in one split.
        near_duplicates: keep two examples in one split if the Jaccard index of their intents' words
            (original or rewritten, with placeholders) or of their snippets' tokens is at least this, and
            transitively all examples connected by such pairs. None to ignore near-duplicates.
        keep_unrewritten: use the original intent of training examples without a rewritten one, instead of
            dropping them (79 of the 2,379).
        max_tokens: maximum number of white-space separated tokens of a training intent or snippet.
        min_probability: smallest probability (`prob`) of mined training examples.
        preparation: conversion to pairs; None for intents and snippets as they are.
        held_out_fraction: share of the training file that is neither trained nor validated on. Which examples
            these are depends on the file and this fraction only, none is in the default development split,
            and all examples of a question and near-duplicates are held out together, so that choices on the
            validation split, or on several splits with other seeds, do not see them. Below 0.9.
        score_held_out: make the held-out examples the test set "held_out", for final scores.
        seed: seed of the split.
    """
    tests: list[Example] = []
    archive: Path | None = None
    if path is None:
        archive = download(url, cache=cache)
        examples = _read_member(archive, TRAIN_MEMBER, md5=train_md5)
        tests = _read_member(archive, TEST_MEMBER) if test is None else []
    else:
        examples = parse(read_text(path, setting="data.path"), name=path)
    if test is not None:
        tests = parse(read_text(test, setting="data.test"), name=test)

    examples, held_out = _hold_out(examples, held_out_fraction)
    if score_held_out and not held_out:
        raise UserError("data.score_held_out=true needs data.held_out_fraction above 0, such as 0.1")
    kept = [
        example
        for example in examples
        if (keep_unrewritten or example.rewritten_intent)
        and (max_tokens is None or max(map(_words, (example.question, example.snippet))) <= max_tokens)
        and example.probability >= min_probability
    ]
    if not kept:
        raise UserError(
            f"{path or url}: all {len(examples)} examples were dropped. Set data.keep_unrewritten=true, "
            "data.max_tokens=null or data.min_probability=0, or use another file"
        )

    if left_out := len(examples) - len(kept):
        settings = "data.keep_unrewritten, data.max_tokens and data.min_probability"
        log.info("%d of the %d examples are left out by %s", left_out, len(examples), settings)
    if held_out:
        log.info("%d further examples are held out (data.held_out_fraction)", len(held_out))

    def prepare(examples: Sequence[Example]) -> list[Pair]:
        make = preparation or Pair
        return [replace(make(one.question, one.snippet), origin=one.origin) for one in examples]

    train, val, _ = split(
        prepare(kept),
        val_fraction=val_fraction,
        seed=seed,
        groups=group_examples(kept, by_question=group_by_question, threshold=near_duplicates),
    )
    test_sets = {"official": prepare(tests), "held_out": prepare(held_out)}
    return Corpus(
        train=train,
        val=val,
        test=test_sets if score_held_out else test_sets["official"],
        metrics=("conala_bleu", "parses") if preparation is None else METRICS,
        files=tuple(Path(file) for file in (archive if path is None else path, test) if file is not None),
    )


def _hold_out(examples: list[Example], fraction: float) -> tuple[list[Example], list[Example]]:
    """Split off the held-out examples, in the order of the file."""
    if fraction == 0:
        return examples, []
    groups = group_examples(examples)
    numbers = range(len(examples))
    never_development, _, _ = split(
        numbers, val_fraction=DEFAULT_VAL_FRACTION, seed=DEFAULT_SEED, groups=groups
    )
    _, chosen, _ = split(
        never_development,
        val_fraction=fraction * len(examples) / len(never_development),
        seed=DEFAULT_SEED,
        groups=[groups[n] for n in never_development],
    )
    rest = sorted(set(numbers) - set(chosen))
    return [examples[n] for n in rest], [examples[n] for n in sorted(chosen)]


def group_examples(
    examples: Sequence[Example], *, by_question: bool = True, threshold: float | None = HELD_OUT_THRESHOLD
) -> list[Hashable]:
    """Return the group of each example, which a split must keep together."""
    keys: list[Hashable] = [
        example.question_id if by_question else index for index, example in enumerate(examples)
    ]
    if threshold is None:
        return keys
    views = [
        [_intent_words(example.intent) for example in examples],
        [_intent_words(example.question) for example in examples],
        [frozenset(cut(example.snippet)) for example in examples],
    ]
    return list(group_near_duplicates(keys, views, threshold=threshold))


def _intent_words(intent: str) -> Tokens:
    text, _ = placeholders.replace_in_intent(normalise(intent))
    return frozenset(re.findall(r"\w+", text.lower()))


def download(url: str, *, cache: str | Path) -> Path:
    """Return the local copy of a file, which appears in `cache` when its download is complete."""
    import pooch  # warns in notebooks without ipywidgets

    try:
        path: str = pooch.retrieve(url, None, path=Path(cache).expanduser(), progressbar=sys.stderr.isatty())
    except (OSError, ValueError) as error:  # network errors are OSErrors
        reason = " ".join(str(error).split())
        raise UserError(
            f"{url} cannot be downloaded to {cache} ({reason}). Download it yourself, unpack it if it is an "
            "archive, and set data.path=FILE"
        ) from error
    return Path(path)


def _read_member(archive: Path, member: str, *, md5: str | None = None) -> list[Example]:
    name = f"{archive} ({member})"
    fix = "Delete the archive to download it again, or set data.path=FILE"
    try:
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(member)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise UserError(f"{name}: cannot be read from the archive ({error}). {fix}") from error
    actual = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 is not None and actual != md5:
        raise UserError(f"{name}: the MD5 is {actual}, expected {md5}. {fix}")
    return parse(decode(content, name=name), name=name)


def parse(text: str, *, name: str) -> list[Example]:
    """Parse the text of a CoNaLa file; `name` is the file name in error messages.

    Annotated examples are a JSON list, mined ones an object per line.
    """
    if text.lstrip().startswith("{"):
        lines = enumerate(split_lines(text), start=1)
        origins = [(line, Origin(name, number)) for number, line in lines if line.strip()]
        return [_example(_load(line, str(origin)), origin) for line, origin in origins]
    items = _load(text, name)
    if not isinstance(items, list):
        raise UserError(f"{name}: expected a JSON list of objects with the fields {', '.join(FIELDS)}")
    return [_example(item, Origin(name, number, "item")) for number, item in enumerate(items, start=1)]


def _load(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{place}: invalid JSON ({error}). The file may be incomplete") from error


def _example(item: Any, origin: Origin) -> Example:
    """Convert one JSON object to an example."""
    if not isinstance(item, dict):
        raise UserError(f"{origin}: expected an object with the fields {', '.join(FIELDS)}")
    probability = item.get("prob", 1.0)
    if "prob" in item:  # mined examples have no rewritten intent
        item = {"rewritten_intent": None, **item}
        if isinstance(probability, bool) or not isinstance(probability, int | float):
            raise UserError(f"{origin}: prob must be a number. Correct or remove the item")
    if missing := [field for field in FIELDS if field not in item]:
        raise UserError(f"{origin}: missing fields: {', '.join(missing)}. Add them or remove the item")
    example = Example(**{field: item[field] for field in FIELDS}, origin=origin, probability=probability)
    for field, text in zip(FIELDS[:3], example[:3], strict=True):
        absent = field == "rewritten_intent" and text in (None, "")
        if not absent and not _is_text(text):
            raise UserError(f"{origin}: {field} must be non-empty text. Correct or remove the item")
    if not isinstance(example.question_id, int | str):
        raise UserError(f"{origin}: question_id must be a number or text. Correct or remove the item")
    return example


def _is_text(value: object) -> bool:
    """Return whether a value is text that a tokenizer can encode to at least one token."""
    return isinstance(value, str) and bool(value.strip()) and not SURROGATE.search(value)


def _words(text: str) -> int:
    return len(text.split())


def group_near_duplicates(
    keys: Sequence[Hashable], views: Sequence[Sequence[Tokens]], *, threshold: float
) -> list[int]:
    """Return the group of each example: the connected components of the similarity graph.

    Two examples are similar if their keys are equal, or if the Jaccard index |A ∩ B| / |A ∪ B| of their
    token sets is at least `threshold` in one of the views. An empty set is similar to none.

    Args:
        threshold: minimum Jaccard index, above 0 and at most 1.
    """
    if not keys:
        return []
    first: dict[Hashable, int] = {}
    equal = np.array([(i, first.setdefault(key, i)) for i, key in enumerate(keys)]).T
    rows, columns = np.hstack([equal, *(similar_pairs(sets, threshold=threshold) for sets in views)])
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(len(keys), len(keys)))
    groups: list[int] = connected_components(graph, directed=False)[1].tolist()
    return groups


def similar_pairs(sets: Sequence[Tokens], *, threshold: float) -> NDArray[np.int64]:
    """Return the indices [2, pairs] of all pairs of sets with a Jaccard index of at least `threshold`."""
    numbers: dict[str, int] = {}
    tokens = [numbers.setdefault(token, len(numbers)) for each in sets for token in each]
    sizes = np.array([len(each) for each in sets])
    members = csr_array((np.ones(len(tokens)), tokens, np.cumsum([0, *sizes])), (len(sets), len(numbers)))
    found = []
    for start in range(0, len(sets), BLOCK):
        shared = (members[start : start + BLOCK] @ members.T).tocoo()  # |A ∩ B|
        rows, columns = shared.row + start, shared.col
        is_similar = shared.data >= threshold * (sizes[rows] + sizes[columns] - shared.data)
        found.append(np.stack([rows, columns])[:, is_similar & (columns < rows)])
    return np.hstack(found)
