"""Pictures drawn from plain arrays and texts: attention heat maps and learning curves.

Nothing here knows a model, and nothing touches pyplot's global state: a function returns a Figure, and
`save` or `save_both` writes it. Texts are shown as they are and never read as formulas, in any script that an
installed font holds. In a token a blank is shown as `␣`, a line break as `↵` and a tab as `⇥`; a character
that cannot be seen, or that no installed font holds, is shown as its code point (`U+200B`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from math import ceil
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from numpy.typing import ArrayLike, NDArray

from attnlab.runs.files import open_atomically

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's colours without their yellow: told apart by colour-blind readers too."""
Dash = Literal["solid", "dashed", "dotted", "dashdot"]
DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot")
"""For more lines than colours."""
COLOUR_MAP = "Blues"
"""White for 0 to dark blue for 1, ever darker on the way, so that it reads the same in grey."""

# Inches
CELL = 0.42  # the side of a cell in a picture that is not too large
LARGEST_WIDTH, LARGEST_HEIGHT = 11.0, 8.0  # of all cells together
VALUE_WIDTH, VALUE_HEIGHT = 0.32, 0.18  # the smallest cell that has room for 0.25
RULED_CELL = 0.12  # the smallest cell that is set off by a line
LABEL_PITCH = 0.21  # from one label to the next, slanting ones too
MARGIN = 0.1

# Points
LABEL_SIZE, VALUE_SIZE, TITLE_SIZE = 9, 7.5, 11

LONGEST_LABEL = 18  # characters
FONT = "DejaVu Sans"  # comes with matplotlib

_MARKS = {" ": "␣", "\n": "↵", "\t": "⇥"}
_JOINERS = "\u200c\u200d"  # not seen themselves, but the shape of Indic and Arabic words depends on them


def heatmap(
    weights: ArrayLike,
    source: Sequence[str],
    target: Sequence[str],
    *,
    title: str = "",
    alignment: ArrayLike | None = None,
) -> Figure:
    """Draw attention weights: a row for each target token, a column for each source token.

    Args:
        weights: [T, S], each 0 to 1. The colours always span 0 to 1, so that pictures can be compared. The
            values stand in the cells where they fit, those below 0.005 left out; elsewhere a colour bar
            stands beside them.
        source: S tokens. Labels are thinned out where they would touch, and long tokens are cut.
        target: T tokens.
        title: Stands above the picture.
        alignment: [T, S], True where a gold alignment links two tokens: these cells are framed.

    Raises:
        ValueError: The shapes do not agree, or there is no cell to draw.
    """
    shape = (len(target), len(source))
    values = _matrix("weights", weights, shape).astype(float)  # [T, S]
    height, width = min(CELL * shape[0], LARGEST_HEIGHT), min(CELL * shape[1], LARGEST_WIDTH)
    cell_height, cell_width = height / shape[0], width / shape[1]
    rows, columns = [_with_signs(token) for token in target], [_with_signs(token) for token in source]
    letters = _Letters([title, *rows, *columns])

    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    image = axes.imshow(values, cmap=COLOUR_MAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.tick_params(which="both", length=0, pad=3, labelsize=LABEL_SIZE)
    axes.spines[:].set_color("0.7")
    axes.xaxis.tick_top()
    _write_labels(axes.yaxis, rows, cell_height, letters)
    _write_labels(axes.xaxis, columns, cell_width, letters)
    _slant_where_tight(axes.get_xticklabels(), figure.dpi * width / len(axes.get_xticks()))
    if min(cell_height, cell_width) >= RULED_CELL:
        _rule(axes, shape)
    if cell_height >= VALUE_HEIGHT and cell_width >= VALUE_WIDTH:
        _print_values(axes, values)
    else:
        _add_colour_bar(axes, image, height, width)
    if alignment is not None:
        _frame(axes, _matrix("alignment", alignment, shape).astype(bool))
    if title:
        letters.dress(axes.set_title(letters.drawn(title), fontsize=TITLE_SIZE, loc="left", pad=10))
    _enclose(figure, axes, height, width)
    return figure


def curves(
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    title: str = "",
    x_label: str = "step",
    y_label: str = "",
) -> Figure:
    """Draw a line through the (x, y) points of each named series; a single point is drawn as a dot."""
    letters = _Letters([title, x_label, y_label, *series])
    styles = ((colour, dash) for dash in cycle(DASHES) for colour in COLOURS)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9")
    lines = []
    for points, (colour, dash) in zip(series.values(), styles, strict=False):
        x, y = np.asarray(points, dtype=float).reshape(-1, 2).T
        lines += axes.plot(x, y, color=colour, linestyle=dash, marker="o" if len(x) == 1 else "")
    letters.dress(axes.set_title(letters.drawn(title), fontsize=TITLE_SIZE, loc="left"))
    letters.dress(axes.set_xlabel(letters.drawn(x_label)))
    letters.dress(axes.set_ylabel(letters.drawn(y_label)))
    if lines:
        names = [letters.drawn(name) for name in series]
        legend = figure.legend(lines, names, loc="outside right upper", frameon=False)
        letters.dress(*legend.get_texts())
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or SVG, as the name ends, in one piece, so that nobody reads half a picture."""
    told = {"Date": None} if path.suffix == ".svg" else {}  # the same picture is the same file
    with mpl.rc_context({"svg.hashsalt": "attnlab"}), open_atomically(path) as file:
        figure.savefig(file, format=path.suffix[1:], dpi=150, bbox_inches="tight", metadata=told)


def save_both(figure: Figure, path: Path) -> Path:
    """Write `path`.png, to look at and to send, and `path`.svg, sharp at any size; returns the PNG's path."""
    for suffix in (".svg", ".png"):
        save(figure, written := path.with_name(path.name + suffix))
    return written


def visible(token: str) -> str:
    """A token as it can be seen anywhere: blanks have a sign, unseen characters stand as their code point."""
    return "".join(
        letter if _can_be_seen(letter) else f"U+{ord(letter):04X}" for letter in _with_signs(token)
    )


def _matrix(name: str, array: ArrayLike, shape: tuple[int, int]) -> NDArray[np.generic]:
    """The array, if it has a row for each target token and a column for each source token."""
    matrix = np.asarray(array)
    if matrix.shape != shape or 0 in shape:
        raise ValueError(
            f"{name} have shape {list(matrix.shape)}, but there are {shape[0]} target and {shape[1]} source "
            "tokens: they must be [T, S], and neither may be 0"
        )
    return matrix


def _with_signs(token: str) -> str:
    return "".join(_MARKS.get(character, character) for character in token)


def _cut(label: str) -> str:
    if len(label) <= LONGEST_LABEL:
        return label
    end = LONGEST_LABEL - 1
    while end > 1 and unicodedata.category(label[end])[0] == "M":  # a vowel sign stays with its letter
        end -= 1
    return label[:end] + "…"


def _write_labels(axis: Axis, tokens: Sequence[str], cell: float, letters: _Letters) -> None:
    """Label every token, or as many as have room where a cell is `cell` inches long."""
    every = ceil(LABEL_PITCH / cell)
    labels = [_cut(letters.drawn(token)) for token in tokens[::every]]
    axis.set_ticks(range(0, len(tokens), every), labels=labels)
    letters.dress(*axis.get_ticklabels())


def _slant_where_tight(labels: Sequence[Text], place: float) -> None:
    """Turn the labels above the picture if one of them is wider than its place, in pixels."""
    if any(label.get_window_extent().width > 0.9 * place for label in labels):
        for label in labels:
            label.set(rotation=45, ha="left", va="baseline", rotation_mode="anchor")


def _rule(axes: Axes, shape: tuple[int, int]) -> None:
    """Set the cells off from each other by thin lines."""
    axes.set_yticks(np.arange(1, shape[0]) - 0.5, minor=True)
    axes.set_xticks(np.arange(1, shape[1]) - 0.5, minor=True)
    axes.grid(which="minor", color="0.88", linewidth=0.5)


def _print_values(axes: Axes, values: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(values):
        if not value < 0.005:  # 0.00 in every cell would bury the others; NaN is printed
            colour = "white" if value > 0.6 else "black"
            axes.text(column, row, f"{value:.2f}", size=VALUE_SIZE, color=colour, ha="center", va="center")


def _add_colour_bar(axes: Axes, image: AxesImage, height: float, width: float) -> None:
    length = min(height, 2.0)
    place = axes.inset_axes((1 + 0.15 / width, 1 - length / height, 0.12 / width, length / height))
    axes.figure.colorbar(image, cax=place, ticks=[0, 1] if length < 1 else [0, 0.25, 0.5, 0.75, 1])
    place.tick_params(length=2, color="0.7", labelsize=VALUE_SIZE)
    place.spines[:].set_color("0.7")


def _frame(axes: Axes, cells: NDArray[np.bool_]) -> None:
    for row, column in np.argwhere(cells):
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, color=COLOURS[1], linewidth=2)
        frame.set(clip_on=False, zorder=3)  # over the lines between cells
        axes.add_patch(frame)


def _enclose(figure: Figure, axes: Axes, height: float, width: float) -> None:
    """Let the figure grow around its cells, of `height` × `width` inches, until the labels are inside."""
    box = figure.get_tightbbox()
    full_width, full_height = box.width + 2 * MARGIN, box.height + 2 * MARGIN
    figure.set_size_inches(full_width, full_height)
    left, bottom = MARGIN - box.x0, MARGIN - box.y0
    axes.set_position((left / full_width, bottom / full_height, width / full_width, height / full_height))


class _Letters:
    """How the texts of one picture are drawn: the fonts that hold them, and what stands for the rest.

    A text is set in as few fonts as hold it, since a word is only shaped rightly within one font.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        characters = {character for text in texts for character in text if _can_be_seen(character)}
        self._held = _fonts_that_hold(characters)
        self._drawable = set().union("\n", *self._held.values())

    def drawn(self, text: str) -> str:
        """The text, with the code point in place of each character that cannot be drawn."""
        return "".join(letter if letter in self._drawable else f"U+{ord(letter):04X}" for letter in text)

    def dress(self, *texts: Text) -> None:
        """Give texts that are drawn the fonts they need."""
        for text in texts:
            fonts = _fewest(self._held, set(text.get_text()))
            text.set(fontfamily=list(dict.fromkeys([*fonts, FONT])), parse_math=False)  # `$` is a `$`


def _can_be_seen(character: str) -> bool:
    """False for control and format characters and unusual blanks; matplotlib fails on lone surrogates."""
    return character in " " + _JOINERS or unicodedata.category(character)[0] not in "CZ"


def _fonts_that_hold(characters: set[str]) -> dict[str, set[str]]:
    """Few installed fonts that hold the characters between them, the preferred first, each with its share."""
    held: dict[str, set[str]] = {}
    for face in _faces():
        font = FT2Font(face.fname, face_index=face.index)
        held[face.name] = {character for character in characters if font.get_char_index(ord(character))}
        if held[FONT] == characters:  # nearly always, and then the other faces need not be read
            break
    kept = {FONT, *_fewest(held, characters)}
    return {name: share for name, share in held.items() if name in kept}


def _faces() -> list[FontEntry]:
    """The upright installed faces, one a family: the font of choice first, then those without serifs."""
    faces: dict[str, FontEntry] = {}
    for face in sorted(fontManager.ttflist, key=lambda face: face.weight != 400):  # regular weight first
        # The font of last resort holds a box for every character there is
        if face.style == "normal" and not face.name.startswith("Last Resort"):
            faces.setdefault(face.name, face)
    return sorted(faces.values(), key=lambda face: (face.name != FONT, "Sans" not in face.name, face.name))


def _fewest(held: Mapping[str, set[str]], characters: set[str]) -> list[str]:
    """The fonts, at each step that which holds most of what is still missing; among equals the first."""
    fonts: list[str] = []
    missing = set().union(*held.values()) & characters
    while missing:
        fonts.append(max(held, key=lambda font: len(held[font] & missing)))
        missing.difference_update(held[fonts[-1]])
    return fonts
