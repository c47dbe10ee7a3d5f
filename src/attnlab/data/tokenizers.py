"""Text to token ids and back, and how a vocabulary is learnt from a training split.

Every training function takes texts and returns a `Tokenizer`; its settings are keyword-only, so that a
configuration can fix them beforehand and leave the texts for later. Built on Hugging Face `tokenizers`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from tokenizers import Encoding, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Pipeline

from attnlab.data import code
from attnlab.data.corpus import Pair
from attnlab.data.slots import put_back
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, SOS

# The library's threads do not survive the forks of data loading, and it says so on standard error in every
# fork. One thread reads 50,000 sentences in a second.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

MARKS = {PAD: "<pad>", SOS: "<sos>", EOS: "<eos>"}
"""The tokens that stand for no text, as they are shown."""
UNKNOWN = "<unk>"
"""How a piece outside the vocabulary is shown. A corpus that writes `<unk>` itself means the same."""
CONTINUED = "##"
"""How a subword begins that continues a word. A word that begins so itself is taken for one."""


class Tokenizer:
    """A vocabulary, and the way texts are cut into its tokens.

    PAD, SOS and EOS (ids 0 to 2) are not spelt anywhere in the wrapped pipeline, whose own ids are counted
    from 3: no text can produce them, not even one that contains `<eos>`. Nor are they added to what is
    encoded; that is for whoever makes batches.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def knowing(self, model: models.Model) -> Tokenizer:
        """Take over the vocabulary of a model."""
        self._pipeline.model = model
        return self

    @property
    def size(self) -> int:
        """V: the number of ids, special ones included."""
        return len(MARKS) + self._pipeline.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of one text. Raises `UserError` at a token outside a closed vocabulary."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, faster than one by one."""
        if self._pipeline.token_to_id(UNKNOWN) is None:
            self._refuse_strangers(texts)
        return [[id + len(MARKS) for id in encoding.ids] for encoding in self._encodings(texts)]

    def decode(self, ids: Iterable[int], strangers: Sequence[str] = ()) -> str:
        """The text of these ids, without PAD, SOS and EOS; an unknown piece reads `<unk>`.

        What was encoded comes back as `clean` gives it, unknown pieces apart. Ids from V on are the
        `strangers` of a sentence, words outside the vocabulary that a network has copied from its source.
        """
        return self._join([self._spelling(id, strangers) for id in ids if id not in MARKS])

    def tokens(self, ids: Iterable[int], strangers: Sequence[str] = ()) -> list[str]:
        """A readable label for each id; a token of nothing but white space is shown as `␣`."""
        spellings = (MARKS.get(id) or self._spelling(id, strangers) for id in ids)
        return [self._blank_label(spelling) if spelling.isspace() else spelling for spelling in spellings]

    def clean(self, text: str) -> str:
        """The text that `decode` would give back, had the vocabulary every piece of it.

        This is what a decoded hypothesis can be fairly compared with.
        """
        return self._join(self.pieces(text))

    def pieces(self, text: str) -> list[str]:
        """What a text is cut into before the vocabulary is asked."""
        normalizer = self._pipeline.normalizer
        normal = normalizer.normalize_str(text) if normalizer else text
        return [piece for piece, _ in self._pipeline.pre_tokenizer.pre_tokenize_str(normal)]

    def spell(self, text: str) -> list[str]:
        """The spelling of each token of a text: unknown words as they stand, unknown subwords as `<unk>`."""
        if isinstance(self._pipeline.model, models.WordLevel):
            return self.pieces(text)
        return [self._spelling(id) for id in self.encode(text)]

    def to_json(self) -> str:
        """Everything there is to know, as text."""
        return self._pipeline.to_str()

    @classmethod
    def from_json(cls, text: str) -> Tokenizer:
        """The tokenizer that wrote this text."""
        pipeline = json.loads(text).get(PythonTokenizer.KEY)
        return (
            cls(Pipeline.from_str(text)) if pipeline is None else PythonTokenizer(Pipeline.from_str(pipeline))
        )

    def id_of(self, piece: str) -> int | None:
        """The id of a piece, or None where the vocabulary lacks it."""
        id = self._pipeline.token_to_id(piece)
        return None if id is None else len(MARKS) + id

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        return self._pipeline.encode_batch_fast(texts)

    def _blank_label(self, blanks: str) -> str:
        return "␣"

    def _spelling(self, id: int, strangers: Sequence[str] = ()) -> str:
        if id >= self.size and strangers:
            return strangers[id - self.size]
        spelling = self._pipeline.id_to_token(id - len(MARKS))
        if spelling is None:
            raise IndexError(f"id {id} in a vocabulary of {self.size}")
        return spelling

    def _join(self, pieces: list[str]) -> str:
        decoder = self._pipeline.decoder
        return decoder.decode(pieces) if decoder else " ".join(pieces)

    def _refuse_strangers(self, texts: Sequence[str]) -> None:
        """Raise `UserError` at the first piece outside a closed vocabulary."""
        known = self._pipeline.get_vocab()
        for piece in chain.from_iterable(map(self.pieces, texts)):
            if piece not in known:
                symbols = sorted(known, key=known.__getitem__)
                raise UserError(
                    f"token {piece!r} is not in the vocabulary {symbols[0]} … {symbols[-1]}: "
                    "use these symbols only, with white space between them"
                )


class PythonTokenizer(Tokenizer):
    """A tokenizer of code, whose texts are cut and put together by `attnlab.data.code`."""

    KEY = "python"

    def pieces(self, text: str) -> list[str]:
        """What code is cut into before the vocabulary is asked."""
        return list(code.cut(text))

    def to_json(self) -> str:
        """Everything there is to know, as text."""
        return json.dumps({self.KEY: super().to_json()})

    def _encodings(self, texts: Sequence[str]) -> list[Encoding]:
        pieces = [self.pieces(text) for text in texts]
        return self._pipeline.encode_batch_fast(pieces, is_pretokenized=True)

    def _blank_label(self, blanks: str) -> str:
        """A line's end matters in Python, and so does how far it is indented."""
        return "".join("⏎" if blank == "\n" else "␣" for blank in blanks)

    def _join(self, pieces: list[str]) -> str:
        whole: list[str] = []
        for piece in pieces:
            if whole and piece.startswith(CONTINUED):
                whole[-1] += piece.removeprefix(CONTINUED)
            else:
                whole.append(piece)
        return code.join(whole)


class Vocabularies(NamedTuple):
    """The tokenizers of both sides; one and the same object where the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    def strangers(self, source: str) -> list[str]:
        """The tokens of a source text that the target's vocabulary lacks, each once, in their order.

        To a network that copies, they are the ids V, V + 1, … of this sentence.
        """
        pieces = dict.fromkeys(self.source.spell(source))
        return [piece for piece in pieces if self.target.id_of(piece) is None]

    def decode(self, ids: Sequence[int], source: str) -> str:
        """The text of target ids, words copied from `source` among them."""
        return self.target.decode(ids, self._copied(ids, source))

    def write(self, ids: Sequence[int], pair: Pair) -> str:
        """The text of target ids as it is scored and shown: with what the pair's slots stand for."""
        return put_back(self.decode(ids, pair.source), pair.slots)

    def tokens(self, ids: Sequence[int], source: str) -> list[str]:
        """A readable label for each target id, words copied from `source` among them."""
        return self.target.tokens(ids, self._copied(ids, source))

    def _copied(self, ids: Sequence[int], source: str) -> list[str]:
        """The sentence's strangers, where any of the ids is one."""
        return self.strangers(source) if max(ids, default=0) >= self.target.size else []


Training = Callable[[Iterable[str]], Tokenizer]
"""One of the training functions below, its settings fixed."""


def train_vocabularies(
    train: Sequence[Pair], *, source: Training, target: Training | None = None, shared: bool = False
) -> Vocabularies:
    """Learn the vocabularies of both sides from the training split.

    `target` defaults to the same training as `source`, on the other side's texts. With `shared`, one
    vocabulary is learnt from the texts of both sides together, and `target` must be left out.
    """
    if shared:
        if target is not None:
            raise UserError(
                "shared_vocabulary=true learns one vocabulary for both sides: leave target_tokenizer out"
            )
        both = source(chain((pair.source for pair in train), (pair.target for pair in train)))
        return Vocabularies(both, both)
    return Vocabularies(
        source=source(pair.source for pair in train),
        target=(target or source)(pair.target for pair in train),
    )


def whitespace(texts: Iterable[str], *, max_size: int | None, min_frequency: int = 1) -> Tokenizer:
    """Tokens are what stands between white space.

    The vocabulary is the special tokens and the `max_size` most frequent words (None: all of them) that
    occur at least `min_frequency` times. Of equally frequent words, the first by code points come first.
    """
    blank = Tokenizer(_blank(pre_tokenizers.WhitespaceSplit()))
    return _most_frequent(blank, texts, max_size=max_size, min_frequency=min_frequency)


CHARACTERS = {
    "apostrophes": "['’ʼ]",
    "ascii_punctuation": r"[!-/:-@\[-`{-~]",
    "punctuation": r"[\p{P}$+<=>^`|~]",  # Unicode's, and ASCII's nine that Unicode calls symbols
    "ascii_digits": "[0-9]",
    "devanagari_digits": "[०-९]",
    "signs": r"[^\w\s]",  # what no name in a program can hold
    "digits": r"\p{Nd}",  # the decimal digits of every script
}
"""The classes of characters that `words` can drop or split off, by name."""


def words(
    texts: Iterable[str],
    *,
    max_size: int | None,
    min_frequency: int = 1,
    lowercase: bool = True,
    drop: Sequence[str] = (),
    split: Sequence[str] = (),
    subwords: bool = False,
) -> Tokenizer:
    """Words of natural language: cleaned, then split at white space.

    Texts are brought to Unicode's composed form (NFC) and lower-cased. The characters of the classes in
    `drop` are deleted, so that "well-known" becomes "wellknown"; each character of the classes in `split`
    becomes a token of its own. The names of classes are those of `CHARACTERS`. Combining marks, such as
    Devanagari's vowel signs, are never punctuation. The vocabulary is chosen as by `whitespace`; or with
    `subwords`, words are cut further, as by `python`.
    """
    cleaning: list[normalizers.Normalizer] = [normalizers.NFC()]
    if lowercase:
        cleaning.append(normalizers.Lowercase())
    if drop:
        cleaning.append(normalizers.Replace(_any_of("drop", drop), ""))
    cutting: list[pre_tokenizers.PreTokenizer] = [pre_tokenizers.WhitespaceSplit()]
    if split:
        cutting.append(pre_tokenizers.Split(_any_of("split", split), "isolated"))
    blank = _blank(
        pre_tokenizers.Sequence(cutting),
        normalizer=normalizers.Sequence(cleaning),
        decoder=decoders.WordPiece(prefix=CONTINUED, cleanup=False) if subwords else None,
    )
    learn = _most_frequent_parts if subwords else _most_frequent
    return learn(Tokenizer(blank), texts, max_size=max_size, min_frequency=min_frequency)


def python(
    texts: Iterable[str], *, max_size: int | None, min_frequency: int = 1, subwords: bool = False
) -> Tokenizer:
    """Python code, cut into the pieces of `attnlab.data.code`.

    Decoding gives code back that has the same syntax tree, and a text that is not Python as it was, unknown
    pieces apart. The vocabulary is chosen as by `whitespace`. Or with `subwords`, a piece is cut further by
    byte-pair encoding, never across two pieces: the most frequent neighbours that occur at least
    `min_frequency` times merge until there are `max_size` subwords. A subword that continues a piece begins
    with `##`: `isinstance` may be read as `is ##instance`. Raises `UserError` where `max_size` has no room
    for every character of the texts.
    """
    learn = _most_frequent_parts if subwords else _most_frequent
    return learn(PythonTokenizer(_blank()), texts, max_size=max_size, min_frequency=min_frequency)


def characters(
    texts: Iterable[str], *, max_size: int | None = None, min_frequency: int = 1, graphemes: bool = False
) -> Tokenizer:
    """Tokens are characters, white space among them.

    A character is a Unicode code point; with `graphemes` it is what a reader would call one, a letter with
    the marks that combine with it (an extended grapheme cluster). The vocabulary is chosen as by
    `whitespace`.
    """
    character = Regex(r"\X" if graphemes else "(?m:.)")  # m: a dot that matches the end of a line too
    blank = Tokenizer(_blank(pre_tokenizers.Split(character, "isolated"), decoder=decoders.Fuse()))
    return _most_frequent(blank, texts, max_size=max_size, min_frequency=min_frequency)


def bpe(texts: Iterable[str], *, max_size: int) -> Tokenizer:
    """Subwords by byte-pair encoding [Sennrich et al. 2016].

    The most frequent neighbours merge until there are `max_size` subwords, besides the special tokens, or
    no pair is left. A space is written `▁` at the beginning of the next token, and a text begins as if a
    space stood before it. Decoding gives a text back to the last space, with two exceptions: one space at
    its very beginning is lost, and a `▁` in the text comes back as a space. Raises `UserError` where
    `max_size` has no room for every character of the texts.
    """
    trainer = trainers.BpeTrainer(vocab_size=max_size + 1, special_tokens=[UNKNOWN], show_progress=False)
    listed = _with_room(texts, max_size)
    return _subwords(_learn(models.BPE(unk_token=UNKNOWN), trainer, listed, pre_tokenizers.Metaspace()).model)


def unigram(texts: Iterable[str], *, max_size: int) -> Tokenizer:
    """Subwords by a unigram language model [Kudo 2018]: the likeliest segmentation of a text.

    There are at most `max_size` subwords, besides the special tokens. Spaces are treated, and `UserError`
    is raised, as by `bpe`. Unknown characters that stand side by side are one unknown piece.
    """
    trainer = trainers.UnigramTrainer(
        vocab_size=max_size + 1, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    learnt = _learn(models.Unigram(), trainer, _with_room(texts, max_size), pre_tokenizers.Metaspace())
    return _subwords(models.Unigram(_settled(json.loads(learnt.to_str())["model"]["vocab"]), unk_id=0))


def symbols(texts: Iterable[str], *, count: int) -> Tokenizer:
    """The closed vocabulary of a synthetic task: PAD, SOS, EOS, then the `count` numbers from 3 on.

    So every symbol is its own id. There is no UNK: encoding anything but symbols with white space between
    them raises `UserError`, and so do `texts` of another task.
    """
    vocabulary = {str(len(MARKS) + id): id for id in range(count)}
    tokenizer = Tokenizer(_pipeline(models.WordLevel(vocabulary, UNKNOWN), pre_tokenizers.WhitespaceSplit()))
    tokenizer.encode_all(_some(texts))
    return tokenizer


def _pipeline(
    model: models.Model,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    pipeline = Pipeline(model)
    pipeline.normalizer = normalizer
    pipeline.pre_tokenizer = pre_tokenizer
    pipeline.decoder = decoder
    return pipeline


def _blank(
    pre_tokenizer: pre_tokenizers.PreTokenizer | None = None,
    *,
    normalizer: normalizers.Normalizer | None = None,
    decoder: decoders.Decoder | None = None,
) -> Pipeline:
    """A pipeline that knows how to cut and to join, and no word yet."""
    return _pipeline(models.WordLevel({}, UNKNOWN), pre_tokenizer, normalizer=normalizer, decoder=decoder)


def _most_frequent(
    blank: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """A vocabulary of whole pieces.

    Counted here: the library's own trainer gives a piece spelt `<unk>` two ids and leaves one of them empty.
    """
    counts = Counter(chain.from_iterable(map(blank.pieces, _some(texts))))
    del counts[UNKNOWN]
    frequent = sorted((-count, piece) for piece, count in counts.items() if count >= min_frequency)
    vocabulary = [UNKNOWN, *(piece for _, piece in frequent[:max_size])]
    return blank.knowing(models.WordLevel({piece: id for id, piece in enumerate(vocabulary)}, UNKNOWN))


def _most_frequent_parts(
    blank: Tokenizer, texts: Iterable[str], *, max_size: int | None, min_frequency: int
) -> Tokenizer:
    """A vocabulary of subwords, each within a piece."""
    if max_size is None:
        raise UserError("tokenizer.subwords=true cuts words into so many subwords: set tokenizer.max_size")
    pieces = list(chain.from_iterable(map(blank.pieces, _some(texts))))
    characters = {character for piece in pieces for character in piece}
    # Named beforehand, for the trainer would number them in the random order of a hash table
    continuing = sorted({CONTINUED + character for piece in pieces for character in piece[1:]})
    _check_room(max_size, needed=len(characters) + len(continuing))
    trainer = trainers.BpeTrainer(
        vocab_size=max_size + 1,
        min_frequency=min_frequency,
        special_tokens=[UNKNOWN, *continuing],
        continuing_subword_prefix=CONTINUED,
        show_progress=False,
    )
    model = models.BPE(unk_token=UNKNOWN, continuing_subword_prefix=CONTINUED)
    return blank.knowing(_learn(model, trainer, pieces, pre_tokenizer=None).model)


def _subwords(model: models.Model) -> Tokenizer:
    return Tokenizer(_pipeline(model, pre_tokenizers.Metaspace(), decoder=decoders.Metaspace()))


def _learn(
    model: models.Model,
    trainer: trainers.Trainer,
    texts: list[str],
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
) -> Pipeline:
    """Train a model, in a pipeline to throw away: it would from then on search raw text for `<unk>`."""
    pipeline = _pipeline(model, pre_tokenizer)
    pipeline.train_from_iterator(texts, trainer)
    return pipeline


def _settled(vocabulary: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Make the learnt log-probabilities the same in every run.

    The library sums them in the random order of a hash table, which shows in their last digits; and it
    gives the characters that it needs for themselves alone, in that order too, scores 0.0001 apart, from
    the lowest up. They get the lowest, all others four decimals, and equals follow their spelling.
    """
    scores = {piece: score for piece, score in vocabulary if piece != UNKNOWN}
    lowest = min(scores.values(), default=0.0)
    near = lowest + 0.0001 * sum(len(piece) == 1 for piece in scores)
    settled = {piece: round(lowest if score < near else score, 4) for piece, score in scores.items()}
    return [(UNKNOWN, 0.0), *sorted(settled.items(), key=lambda item: (-item[1], item[0]))]


def _some(texts: Iterable[str]) -> list[str]:
    listed = list(texts)
    if not listed:
        raise UserError("there are no texts to learn a vocabulary from: the training split is empty")
    return listed


def _with_room(texts: Iterable[str], max_size: int) -> list[str]:
    """The texts, if a vocabulary of this size can hold all their characters."""
    listed = _some(texts)
    _check_room(max_size, needed=len({"▁"}.union(*listed) - {" "}))
    return listed


def _check_room(max_size: int, *, needed: int) -> None:
    if max_size < needed:
        raise UserError(
            f"tokenizer.max_size={max_size} is too small: the training texts hold {needed} characters, "
            "and each needs a place"
        )


def _any_of(setting: str, names: Sequence[str]) -> Regex:
    """What matches one character of the named classes."""
    for name in names:
        if name not in CHARACTERS:
            raise UserError(
                f"tokenizer.{setting}: no class of characters is called {name!r}; there are "
                f"{', '.join(CHARACTERS)}"
            )
    return Regex("|".join(CHARACTERS[name] for name in names))
