"""tokenizer.js splits, encodes and decodes as the Python tokenizers do."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from attnlab.data.tokenization import train
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import subwords
from attnlab.deploy.export import browser_page as page
from attnlab.deploy.export.page_tokenizer import describe
from attnlab.errors import UserError
from browser import browser

TEXTS = [
    "The quick, brown fox (jumps) over the lazy dog!",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ İstanbul straße STRASSE",
    "e\u0301te\u0301 n\u0303 cafe\u0301",
    "  two  spaces\tand a tab \u00a0 \u2003 end ",
    "मुलगा शाळेत गेला १२३ 45",
    "ذهب الولد إلى المدرسة",
    "well-known don't ’tis #tag $5 a+b=c ² ① _x",
    "👩‍👩‍👧 🇩🇪 naïve",
    "▁low ##er lowest <unk> lower",
    "zebra xylophone",
    "low lower lowest new newer newest wide wider",
]
TOKENIZERS: dict[str, Callable[[list[str]], Tokenizer]] = {
    "whitespace": partial(train.whitespace, max_size=None),
    "normalised": partial(train.whitespace, max_size=None, normalization="nfkd", lowercase=True),
    "words": partial(train.words, max_size=20, drop=["punctuation", "ascii_digits"]),
    "split words": partial(train.words, max_size=None, lowercase=False, split=["signs", "digits"]),
    "subwords": partial(train.words, max_size=160, drop=[], subwords=True),
    "characters": partial(train.characters),
    "graphemes": partial(train.characters, graphemes=True),
    "bpe": partial(subwords, max_size=140),
    "unigram": partial(subwords, algorithm="unigram", max_size=140),
}


def test_javascript_tokenizers_equal_python(tmp_path: Path) -> None:
    trained = {name: make(TEXTS[:8] + TEXTS[10:] * 3) for name, make in TOKENIZERS.items()}
    described = {name: describe(tokenizer, side="source") for name, tokenizer in trained.items()}
    texts = [*TEXTS, ""]
    script = (page.FOLDER / "tokenizer.js").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(f'<meta charset="utf-8"><script>{script}</script>', encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(tmp_path / "page.html")
        results = tab.run(f"""
            Object.fromEntries(Object.entries({json.dumps(described)}).map(([name, description]) => {{
                const tokenizer = makeTokenizer(description);
                return [name, {json.dumps(texts)}.map(text => {{
                    const ids = tokenizer.encode(text).map(({{ id }}) => id);
                    return [ids, tokenizer.decode(ids, []), ids.map(id => tokenizer.label(id, []))];
                }})];
            }}))
        """)
    for name, tokenizer in trained.items():
        for text, (ids, decoded, labels) in zip(texts, results[name], strict=True):
            assert ids == tokenizer.encode(text), (name, text)
            assert decoded == tokenizer.decode(ids), (name, text)
            assert labels == tokenizer.tokens(ids), (name, text)


def test_tokenizer_of_python_code_is_refused() -> None:
    tokenizer = train.python(["print(1)"], max_size=None)
    with pytest.raises(UserError, match=r"the target tokenizer \(Python code\) does not run in a browser"):
        describe(tokenizer, side="target")
