"""Text to token ids and back, by a vocabulary that has been learnt. Built on Hugging Face `tokenizers`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import chain

from tokenizers import Encoding, models
from tokenizers import Tokenizer as Pipeline

from attnlab.data.tokenization import python_code
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

    @property
    def splits_words(self) -> bool:
        """Whether a token may be less than a word: a subword, or a character."""
        return not isinstance(self._pipeline.model, models.WordLevel) or len(self.pieces("word")) > 1

    def encode(self, text: str) -> list[int]:
        """The ids of one text. Raises `UserError` at a token outside a closed vocabulary."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, faster than one by one."""
        if self._pipeline.token_to_id(UNKNOWN) is None:
            self._reject_oov_tokens(texts)
        return [[id + len(MARKS) for id in encoding.ids] for encoding in self._encodings(texts)]

    def decode(self, ids: Iterable[int], oov_tokens: Sequence[str] = ()) -> str:
        """The text of these ids, without PAD, SOS and EOS; an unknown piece reads `<unk>`.

        What was encoded comes back as `clean` gives it, unknown pieces apart. Ids from V on are the
        `oov_tokens` of a sentence, words outside the vocabulary that a network has copied from its source.
        """
        return self._join([self._spelling(id, oov_tokens) for id in ids if id not in MARKS])

    def tokens(self, ids: Iterable[int], oov_tokens: Sequence[str] = ()) -> list[str]:
        """A readable label for each id; a token of nothing but white space is shown as `␣`."""
        spellings = (MARKS.get(id) or self._spelling(id, oov_tokens) for id in ids)
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

    def _spelling(self, id: int, oov_tokens: Sequence[str] = ()) -> str:
        if id >= self.size and oov_tokens:
            return oov_tokens[id - self.size]
        spelling = self._pipeline.id_to_token(id - len(MARKS))
        if spelling is None:
            raise IndexError(f"id {id} in a vocabulary of {self.size}")
        return spelling

    def _join(self, pieces: list[str]) -> str:
        decoder = self._pipeline.decoder
        return decoder.decode(pieces) if decoder else " ".join(pieces)

    def _reject_oov_tokens(self, texts: Sequence[str]) -> None:
        """Raise `UserError` at the first piece outside a closed vocabulary; white space parts its pieces."""
        known = self._pipeline.get_vocab()
        for piece in dict.fromkeys(chain.from_iterable(map(str.split, texts))):
            if piece not in known:
                symbols = sorted(known, key=known.__getitem__)
                raise UserError(
                    f"token {piece!r} is not in the vocabulary {symbols[0]} … {symbols[-1]}: "
                    "use these symbols only, with white space between them"
                )


class PythonTokenizer(Tokenizer):
    """Tokenizer of Python code (see `attnlab.data.tokenization.python_code`)."""

    KEY = "python"

    def pieces(self, text: str) -> list[str]:
        """What code is cut into before the vocabulary is asked."""
        return list(python_code.cut(text))

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
        return python_code.join(whole)
