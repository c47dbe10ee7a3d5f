"""tokenizer.js splits, encodes and decodes as the Python tokenizers do."""

import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tokenizers import Regex, pre_tokenizers

from attnlab.data.conala.tokenizer import python
from attnlab.data.tokenization import train
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import subwords
from attnlab.deploy.export import browser_page as page
from attnlab.deploy.export.page_tokenizer import describe
from attnlab.errors import UserError
from browser import Page, browser

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


def strings_of_all_scripts() -> list[str]:
    """Return strings of letters, marks, controls and joiners of every script, and conjuncts."""
    draw = random.Random(0)
    codes = [code for code in (*range(0x30000), *range(0xE0000, 0xE1000)) if not 0xD800 <= code < 0xE000]
    marks = [code for code in codes if unicodedata.category(chr(code)) in ("Mn", "Mc", "Me", "Cc", "Cf")]
    viramas = [code for code in codes if unicodedata.combining(chr(code)) == 9]
    special = [0x200D, 0x1F1E6, 0x1F1E7, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xAC01]
    special += [0x1F469, 0x2764, 0xFE0F, 0x600]
    pools = (codes, marks, viramas, special)
    strings = ["".join(chr(draw.choice(draw.choice(pools))) for _ in range(9)) for _ in range(4000)]
    conjuncts = [f"{chr(code - 20)}{chr(code)}{chr(code - 21)}{chr(code - 10)}" for code in viramas]
    return [*strings, *conjuncts, "क्षत्रिय", "\r\n\n\r"]


def test_grapheme_clusters_of_all_scripts_equal_python(tmp_path: Path) -> None:
    texts = strings_of_all_scripts()
    tokenizer = train.characters(texts, graphemes=True)
    assert len(tokenizer.encode("क्षत्रिय")) == 5  # not 3, as Unicode 15.1 splits it
    clusters = pre_tokenizers.Split(Regex(r"\X"), "isolated")  # of the library's own Unicode
    for text in texts:
        assert tokenizer.pieces(text) == [piece for piece, _ in clusters.pre_tokenize_str(text)]
    assert r"\X" not in json.loads(tokenizer.to_json())["pre_tokenizer"]["pattern"]["Regex"]
    with page_of_tokenizers(tmp_path) as tab:
        description = json.dumps(describe(tokenizer, side="source"))
        encoded = tab.run(f"""(tokenizer =>
            {json.dumps(texts)}.map(text => tokenizer.encode(text).map(({{ id }}) => id))
        )(makeTokenizer({description}))""")
    assert encoded == tokenizer.encode_all(texts)


@pytest.mark.slow
def test_large_vocabularies(tmp_path: Path) -> None:
    vocabulary = [f"w{number}" for number in range(130_000)]
    words = train.whitespace([" ".join(vocabulary)])
    unigram = json.loads(subwords(TEXTS, algorithm="unigram", max_size=140).to_json())
    unigram["model"]["vocab"] += [[word, -9.5] for word in vocabulary]
    with page_of_tokenizers(tmp_path) as tab:
        for tokenizer in (words, Tokenizer.from_json(json.dumps(unigram))):
            tab.run(f"window.tokenizer = makeTokenizer({json.dumps(describe(tokenizer, side='source'))}); 0")
            ids = tab.run("tokenizer.encode('w129999 w7').map(({ id }) => id)")
            assert ids == tokenizer.encode("w129999 w7")


@contextmanager
def page_of_tokenizers(folder: Path) -> Iterator[Page]:
    """Open an empty page with `tokenizer.js`."""
    script = (page.FOLDER / "tokenizer.js").read_text(encoding="utf-8")
    (folder / "page.html").write_text(f'<meta charset="utf-8"><script>{script}</script>', encoding="utf-8")
    with browser(folder / "profile") as tab:
        tab.open(folder / "page.html")
        yield tab


def test_javascript_tokenizers_equal_python(tmp_path: Path) -> None:
    trained = {name: make(TEXTS[:8] + TEXTS[10:] * 3) for name, make in TOKENIZERS.items()}
    described = {name: describe(tokenizer, side="source") for name, tokenizer in trained.items()}
    texts = [*TEXTS, ""]
    with page_of_tokenizers(tmp_path) as tab:
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
    tokenizer = python(["print(1)"], max_size=None)
    with pytest.raises(
        UserError, match=r"the target tokenizer \(PythonTokenizer\) does not run in a browser"
    ):
        describe(tokenizer, side="target")
