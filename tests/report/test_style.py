"""Styles of variants."""

from attnlab.report.style import variant_styles


def test_styles_are_distinct_and_also_without_colour() -> None:
    styles = variant_styles([f"variant {index}" for index in range(42)])
    assert len({(style.colour, style.dash, style.marker) for style in styles.values()}) == 42
    assert len({(style.colour, style.dash) for style in list(styles.values())[:28]}) == 28
    assert len({(style.dash, style.marker) for style in list(styles.values())[:12]}) == 12
