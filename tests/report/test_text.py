"""Fonts of labels."""

import pytest
from figure_checks import pixels
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text

from attnlab.report.text import LabelFonts, _script, visible


def rendered(text: str) -> Text:
    """A label after rendering, which would raise for a glyph that is missing from its fonts."""
    figure, fonts = Figure(), LabelFonts([text])
    label = figure.text(0, 0, fonts.drawable(text))
    fonts.apply(label)
    pixels(figure)
    return label


@settings(max_examples=15)
@given(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8))
@example("क्ष्म\u200dी")
@example("مرحبا")
@example("日本語中文한국어")
@example("Straße")
def test_every_character_is_in_one_of_the_fonts(text: str) -> None:
    label = rendered(text)
    fonts = [get_font(findfont(FontProperties(family=name))) for name in label.get_fontfamily()]
    for character in label.get_text():
        assert any(font.get_char_index(ord(character)) for font in fonts)


def test_one_font_renders_a_whole_word() -> None:
    # The default font contains the joiner, but the cluster is shaped correctly only in a Devanagari font
    label = rendered("क्ष\u200dी")
    if "U+" in label.get_text():
        pytest.skip("no font with Devanagari is installed")
    font = get_font(findfont(FontProperties(family=label.get_fontfamily()[0])))
    assert all(font.get_char_index(ord(character)) for character in "क्ष\u200dी")


def test_missing_script_is_logged_once_by_name(caplog: pytest.LogCaptureFixture) -> None:
    fonts = LabelFonts(["\U00010a00\U00010a10", "a"])
    if fonts.drawable("\U00010a10") != "U+10A10":
        pytest.skip("a font with Kharoshthi is installed")
    LabelFonts(["\U00010a11"])
    (message,) = caplog.messages
    assert message == "no installed font has Kharoshthi characters: figures show their code points"


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("\u1112\u1161\u11ab\ud55c", "Hangul"),  # the letters of a syllable, and the syllable
        ("\u0f40\u0f90", "Tibetan"),
        ("\u1780\u17b6\u17e1\u17a2\u17ab", "Khmer"),
        ("\u1403\u14a1", "Canadian"),
    ],
)
def test_letters_vowels_and_digits_are_of_one_script(text: str, script: str) -> None:
    assert {_script(character) for character in text} == {script}


@pytest.mark.parametrize("text", ["क्ष\u200dी", "می\u200cخواهم", "❤\ufe0f", "two words"])
def test_joiners_and_selectors_in_words_stay(text: str) -> None:
    assert visible(text) == text
