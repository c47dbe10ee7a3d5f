"""Tokenizer of Python code."""

from collections.abc import Iterable
from typing import ClassVar, Unpack

from attnlab.data.conala import python_code
from attnlab.data.tokenization.tokenizer import PresplitTokenizer, Tokenizer
from attnlab.data.tokenization.train import VocabularySettings, train_pieces


class PythonTokenizer(PresplitTokenizer):
    """Tokenizer of Python code; see `attnlab.data.conala.python_code`."""

    KEY = "python"
    module: ClassVar = python_code

    def _label(self, spelling: str) -> str:
        """Show newlines and each space, because both are significant in Python."""
        return "".join("⏎" if sign == "\n" else "␣" if sign.isspace() else sign for sign in spelling)


def python(
    texts: Iterable[str], *, subwords: bool = False, **settings: Unpack[VocabularySettings]
) -> Tokenizer:
    """Train a tokenizer of Python code with the pieces of `attnlab.data.conala.python_code`.

    Decoded Python has the same syntax tree as the original; other text is decoded exactly, except for unknown
    tokens.

    Args:
        subwords: split pieces further into `max_size` subwords by byte-pair encoding: `isinstance` may become
            `is ##instance`.
    """
    return train_pieces(texts, kind=PythonTokenizer, subwords=subwords, **settings)
