from attnlab.files.terminal import escape_control_characters


def test_only_characters_that_act_on_a_terminal_are_escaped() -> None:
    assert escape_control_characters('größe माझा 🙂 "a\\b"') == 'größe माझा 🙂 "a\\b"'
    assert escape_control_characters("10\u202f000\u2029") == "10\u202f000\u2029"  # beside those of direction
    assert escape_control_characters("a\x1b[31mb\n\x9bc") == r"a\x1b[31mb\n\x9bc"
    assert escape_control_characters("a\u202eb\u2066c\ud800") == r"a\u202eb\u2066c\ud800"
