r"""Grapheme clusters as a regular expression, which a tokenizer stores.

`\X` depends on the version of Unicode: versions of the tokenizers library differ, and since Unicode 15.1, a
browser's `Intl.Segmenter` joins the consonants of Indic conjuncts. The expression is that of
UAX 29 (table 1c) with the character classes of the library that trained, which are found by splitting probes.
"""

from collections.abc import Iterable, Sequence
from functools import cache

from tokenizers import Regex, pre_tokenizers

PROBED = [
    *(code for code in range(0x20000) if not (0x3400 <= code < 0xA000 or 0xAC00 <= code < 0xD7B0)),
    *range(0xE0000, 0xE1000),
]
"""Code points that may be anything but a base: others, such as ideographs and syllables, are known."""

SYLLABLES = range(0xAC00, 0xD7A4)
REGIONAL_INDICATOR, JOINER = r"[\x{1f1e6}-\x{1f1ff}]", "\u200d"
START = r"\r\n|["
"""Start of every expression of `grapheme_pattern`."""


@cache
def grapheme_pattern() -> str:
    r"""Return an expression whose matches are those of `\X`; in JavaScript, code points are `\u{…}`."""
    extend = _joined(PROBED, "a", "")  # with spacing marks and the joiner
    prepend = _joined(PROBED, "", "a")
    pictographs = _joined(PROBED, f"©{JOINER}", "") - extend
    control = {code for code in PROBED if not _is_surrogate(code)} - _joined(PROBED, "", "\u0308") | {10, 13}
    P, M, X, C = map(_character_class, (prepend, extend, pictographs, control))
    E = _character_class(_joined(sorted(extend), "©", f"{JOINER}©"))
    jamo = [*range(0x1100, 0x1200), *range(0xA960, 0xA980), *range(0xD7B0, 0xD800), *range(0x16D00, 0x16D80)]
    L = _character_class(_joined(jamo, "", "\uac00"))
    V = _character_class(_joined(jamo, "\u1100", "") - extend - _joined(jamo, "", "\uac00"))
    T = _character_class(_joined(jamo, "\uac01", "") - extend)
    LV = _character_class(SYLLABLES[::28])
    LVT = _character_class(set(SYLLABLES) - set(SYLLABLES[::28]))
    syllable = f"{L}*(?:{V}+|{LV}{V}*|{LVT}){T}*|{L}+|{T}+"
    sequence = rf"{X}(?:{E}*\x{{200d}}{X})*"
    core = f"{syllable}|{REGIONAL_INDICATOR}{{2}}|{sequence}|[^{C[1:]}"
    return rf"\r\n|{C}|{P}*(?:{core}){M}*"


def _joined(codes: Sequence[int], before: str, after: str) -> set[int]:
    """Return the code points that form one cluster with the text before and after them."""
    probes = {f"{before}{chr(code)}{after}": code for code in codes if not _is_surrogate(code)}
    split = pre_tokenizers.Split(Regex(r"\X"), "isolated")
    # "\n" is split off from any text, except from "\r"
    clusters = split.pre_tokenize_str(
        "\n".join(probe for probe, code in probes.items() if code not in (10, 13))
    )
    return {probes[cluster] for cluster, _ in clusters if cluster in probes}


def _is_surrogate(code: int) -> bool:
    return 0xD800 <= code < 0xE000


def _character_class(codes: Iterable[int]) -> str:
    r"""Return code points as an expression, such as `[\x{300}-\x{36f}]`."""
    ranges: list[list[int]] = []
    for code in sorted(codes):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    written = (rf"\x{{{start:x}}}" + ("" if start == end else rf"-\x{{{end:x}}}") for start, end in ranges)
    return f"[{''.join(written)}]"
