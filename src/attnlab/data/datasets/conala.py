"""CoNaLa: English intents and the Python snippets that fulfil them (Yin et al. 2018).

The annotated corpus comes from Stack Overflow, CC BY-SA 4.0: 2,379 training and 500 test examples in an
archive that also holds mined pairs, which are not read here.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from attnlab.data.corpus import Corpus, Pair, split
from attnlab.data.datasets import placeholders
from attnlab.data.datasets.near_duplicates import Tokens, group
from attnlab.data.download import fetch
from attnlab.data.files import decode, read_text
from attnlab.data.tokenization.python_code import cut
from attnlab.errors import UserError

URL = "http://www.phontron.com/download/conala-corpus-v1.1.zip"
TRAIN_MEMBER = "conala-corpus/conala-train.json"
TEST_MEMBER = "conala-corpus/conala-test.json"
TRAIN_MD5 = "3c339ac6a45566f70a2a74db1ef3cc3a"

FIELDS = ("intent", "rewritten_intent", "snippet", "question_id")
SCORES = ("conala_bleu", "conala_exact_match", "parses", "slot_accuracy")
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can write one, UTF-8 and tokenizers cannot hold one."""


QUOTES = str.maketrans("‘’“”", "''\"\"")
BLANKS_OR_WORD = re.compile(rf"{placeholders.SPAN.pattern}|(?P<word>\b[A-Z][a-z]*\b)|\s+", re.DOTALL)


def normalise(intent: str) -> str:
    """An intent as most are written, for the same question asked in two ways should read the same.

    Typographic quotation marks become plain ones, runs of blanks one blank, and a full stop, a question mark
    or the like at the end goes. A word with a capital at its beginning alone is lower-cased, "Sort" and "I"
    but not "DataFrame" or "CSV", which may be names. What stands in quotes is kept to the letter.
    """

    def written(match: re.Match[str]) -> str:
        if match["word"]:
            return match["word"].lower()
        return " " if match[0].isspace() else match[0]

    plain = BLANKS_OR_WORD.sub(written, intent.translate(QUOTES).strip())
    return plain.rstrip(" .?!:;,") or plain


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """From an intent and its snippet to the pair that a network reads.

    Args:
        normalise: bring intents to one way of writing.
        slots: name what the intent quotes, in both texts; the pair knows how to put it back.
    """

    normalise: bool = True
    slots: bool = False

    def __call__(self, intent: str, snippet: str = "") -> Pair:
        """The pair; outputs for it are scored against the raw snippet."""
        source = normalise(intent) if self.normalise else intent
        quoted = tuple(placeholders.quoted(source))
        if not self.slots:
            return Pair(source, snippet, reference=snippet, quoted=quoted)
        source, named = placeholders.name(source)
        return Pair(
            source, placeholders.take_out(snippet, named), reference=snippet, slots=named, quoted=quoted
        )


class Example(NamedTuple):
    """One object of a CoNaLa file."""

    intent: str
    rewritten_intent: str | None
    snippet: str
    question_id: int | str

    @property
    def asked(self) -> str:
        """The rewritten intent, or the intent where nobody rewrote it."""
        return self.rewritten_intent or self.intent


def load(
    *,
    path: str | None = None,
    test_path: str | None = None,
    cache: str,
    url: str = URL,
    known_hash: str | None = None,
    train_md5: str | None = TRAIN_MD5,
    val_fraction: float = 0.2,
    group_by_question: bool = True,
    near_duplicates: float | None = None,
    keep_unrewritten: bool = False,
    max_tokens: int | None = 50,
    preparation: Preparation | None = None,
    seed: int = 0,
) -> Corpus:
    """Read the annotated corpus, and hold a validation split out of its training file.

    `path` is a training file of one's own and `test_path` a test file; without `test_path` there is then no
    test split. Without `path` the official archive is downloaded into `cache`, and its test file is the
    test. `known_hash` checks the whole archive; where it is None pooch prints the hash that came. What is
    trained on is checked in any case, by `train_md5` (None for another edition of the corpus).

    Of the training file, examples without a rewritten intent are dropped, unless `keep_unrewritten` falls
    back on the intent; so are those with more than `max_tokens` tokens on either side, counted between runs
    of white space. Of the 2,379 examples 2,300 remain: 79 have no rewritten intent, and none is too long
    (the longest intent has 32 tokens, the longest snippet 29; only splitting at every single blank would
    make 64 of an indented one). The test file is read whole, so that scores compare with published ones.

    All examples of one question land in one split, unless `group_by_question` is false. With
    `near_duplicates`, so do two examples that share at least this part of the words of their intents (as
    asked or as rewritten, with slots for what they quote) or of the pieces of their snippets, by Jaccard's
    index, and whatever a chain of such pairs joins. Snippets keep their white space; 84 of the training file
    hold line breaks.

    Without a `preparation` a pair is the intent and the snippet as they stand.

    Raises `UserError` for files that cannot be had, read or understood.
    """
    if max_tokens is not None and max_tokens < 1:
        raise UserError(f"data.max_tokens={max_tokens}: allow at least 1 token, or null for any number")
    if near_duplicates is not None and not 0 < near_duplicates <= 1:
        raise UserError(f"data.near_duplicates={near_duplicates}: a share above 0 and at most 1, or null")
    tests: list[Example] = []
    if path is None:
        archive = fetch(url, known_hash=known_hash, cache=cache)
        examples = _read_member(archive, TRAIN_MEMBER, md5=train_md5)
        tests = _read_member(archive, TEST_MEMBER) if test_path is None else []
    else:
        examples = _parse(read_text(path), name=path)
    if test_path is not None:
        tests = _parse(read_text(test_path), name=test_path)

    kept = [
        example
        for example in examples
        if (keep_unrewritten or example.rewritten_intent) and _fits(example, max_tokens)
    ]
    if not kept:
        raise UserError(
            f"{path or url}: none of its {len(examples)} examples is left to train on: give another file, or "
            "set data.keep_unrewritten=true or data.max_tokens=null"
        )
    prepare = preparation or Pair
    train, val, _ = split(
        [prepare(example.asked, example.snippet) for example in kept],
        val_fraction=val_fraction,
        seed=seed,
        groups=_groups(kept, by_question=group_by_question, threshold=near_duplicates),
    )
    return Corpus(
        train=train,
        val=val,
        test=[prepare(example.asked, example.snippet) for example in tests],
        scores=("conala_bleu", "parses") if preparation is None else SCORES,
    )


def _groups(examples: list[Example], *, by_question: bool, threshold: float | None) -> list[Hashable] | None:
    """What must not be torn apart by a split; None for nothing."""
    keys: list[Hashable] = [
        example.question_id if by_question else place for place, example in enumerate(examples)
    ]
    if threshold is None:
        return keys if by_question else None
    views = [
        [_words(placeholders.name(normalise(example.intent))[0]) for example in examples],
        [_words(placeholders.name(normalise(example.asked))[0]) for example in examples],
        [frozenset(cut(example.snippet)) for example in examples],
    ]
    return list(group(keys, views, threshold=threshold))


def _words(text: str) -> Tokens:
    return frozenset(re.findall(r"\w+", text.lower()))


def _read_member(archive: Path, member: str, *, md5: str | None = None) -> list[Example]:
    """The examples of one file in the archive, which is never unpacked: nothing is left half-written."""
    name = f"{archive} ({member})"
    mend = "delete the archive to download it again, or set data.path=FILE"
    try:
        with zipfile.ZipFile(archive) as opened:
            content = opened.read(member)
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise UserError(f"{name}: cannot be read from the archive ({error}): {mend}") from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 is not None and found != md5:
        raise UserError(f"{name}: its md5 is {found}, not {md5}: {mend}")
    return _parse(decode(content, name=name), name=name)


def _parse(text: str, *, name: str) -> list[Example]:
    """The examples of a CoNaLa file's text; `name` is what errors call the file."""
    try:
        items = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{name}, line {error.lineno}: not valid JSON ({error.msg}): it may be cut short; fetch it again"
        ) from error
    if not isinstance(items, list):
        raise UserError(f"{name}: not a JSON list: give a list of objects with {', '.join(FIELDS)}")
    return [_example(item, place=f"{name}, item {number}") for number, item in enumerate(items, start=1)]


def _example(item: object, *, place: str) -> Example:
    """One object, checked."""
    if not isinstance(item, dict):
        raise UserError(f"{place}: not an object: give it {', '.join(FIELDS)}")
    if missing := [field for field in FIELDS if field not in item]:
        raise UserError(f"{place}: lacks {', '.join(missing)}: add what is missing, or remove the item")
    example = Example(*(item[field] for field in FIELDS))
    for field, text in zip(FIELDS[:3], example[:3], strict=True):
        absent = field == "rewritten_intent" and text in (None, "")
        if not absent and not _is_text(text):
            raise UserError(f"{place}: {field} is not a text: mend or remove the item")
    if not isinstance(example.question_id, int | str):
        raise UserError(f"{place}: question_id is neither a number nor a text: mend or remove the item")
    return example


def _is_text(value: object) -> bool:
    """Whether a tokenizer can read it and find a token in it."""
    return isinstance(value, str) and bool(value.strip()) and not SURROGATE.search(value)


def _fits(example: Example, max_tokens: int | None) -> bool:
    """Whether neither side has more tokens, counted between runs of white space."""
    return max_tokens is None or all(
        len(text.split()) <= max_tokens for text in (example.asked, example.snippet)
    )
