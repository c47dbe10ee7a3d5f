import ast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attnlab.data.conala.python_code import DEDENT, GLUE, INDENT, cut, join, parse, same_tree, units

MARKERS = {INDENT, DEDENT, GLUE}
PYTHON = [
    "sum(d * 10 ** i for i, d in enumerate(x[::-1]))",
    "r = int(''.join(map(str, x)))",
    "datetime.strptime('2010-11-13 10:33:54.227806', '%Y-%m-%d %H:%M:%S.%f')",
    "df.loc[df['a'] != -1, ['b', 'c']].values[1:-1]",
    "max(d, key=lambda x: (-x[1], *x))",
    "f(*args, **{'a': ~b, 'c': not d})",
    "x = y if not z else -w",
    "re.sub(r'(\\w+)\\.', '\\\\1', s)",
    "for i in x:\n    if i:\n        print(i)\n    else:\n        pass\nprint('end')",
    "@property\ndef f(self, a: int=3, *, b=None) -> str:\n    return f'{self.a!r:>{b}} {{}}'",
    "with open('a') as f, open('b') as g:\n    f.write(g.read())  # copy it",
    "a @ b; c @= d; e = f @ -g",
    "[x for x in y if x not in (1, 2.5, 1e-05, 0x1F, 3j)]",
    "'''two\nlines''' \"and\" b'bytes' u'text'",
    "from . import a\nfrom .. import b\nfrom .c import (d, e)",
    "x[..., :, (None)]",
    "async def f():\n    await g()\n    yield (await h(), )",
    "print((yield))",
    "if (n := 10) > 5: print(n)",
    "lambda: 0",
    "1 .real",
    "x = {1: 2, **a, 'b': [c, *d]}",
    "# only words",
    "",
]


@pytest.mark.parametrize("code", PYTHON)
def test_code_in_pep_8_style_is_restored_exactly(code: str) -> None:
    assert join(cut(code)) == code.replace(", )", ",)")


@pytest.mark.parametrize(
    ("code", "formatted"),
    [
        ("print( 'a' )", "print('a')"),
        ("a=b+c", "a = b + c"),
        ("f(a = 1,b=2)", "f(a=1, b=2)"),
        ("x [ 1 : 2 ]", "x[1:2]"),
        ("if x:\n\ty\n\n\n\tz\n", "if x:\n    y\n    z"),
        ("f(a,\n  b)", "f(a, b)"),
        ("f(a,  # why\n  b)", "f(a,  # why\nb)"),
        ("a = b \\\n    + c", "a = b + c"),
        ("if x:\n  if y:\n    z\nw", "if x:\n    if y:\n        z\nw"),
        ("if x:\n    # why\n    y", "if x:\n# why\n    y"),
        ("'a'  'b'", "'a' 'b'"),
        ("s = '''a\n  b'''", "s = '''a\n  b'''"),
    ],
)
def test_valid_python_is_formatted_and_keeps_its_syntax_tree(code: str, formatted: str) -> None:
    assert join(cut(code)) == formatted
    assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(formatted))


def test_strings_are_split_into_words_and_names_are_not() -> None:
    assert cut("print(r'two  words\\n')") == ("print", "(", "r'", "two", "  ", "words", "\\n", "'", ")")
    assert cut("my_list.sort()") == ("my_list", ".", "sort", "(", ")")
    assert cut("x = 1  # a b") == ("x", "=", "1", "#", " ", "a", " ", "b")


def test_indents_are_markers() -> None:
    code = "for i in x:\n  if i:\n    y\nz"
    assert cut(code) == (
        *("for", "i", "in", "x", ":", "\n", INDENT, "if", "i", ":", "\n", INDENT, "y", "\n", DEDENT, DEDENT),
        "z",
    )


@pytest.mark.parametrize(
    "text",
    [
        "print 'hello  world' % x",
        "print >>f, 'a', `b`, 0777, ur'c'",
        "exec 'x'",
        "raise E, 'x'",
        "for i in x:\n\tprint i\n\n    print   j\n",
        "print'it''s'",
        "if x",
        "  x = [1,2",
        "$ pip install  --user 'x y'   ",
        "it's {{ car.date | datetime }}\r\n",
        '"""not closed',
        "a\0b",
        "\ufeffx y",
        "x  y # done ",
        "日本 語",
    ],
)
def test_invalid_python_is_restored_exactly(text: str) -> None:
    assert parse(text) is None
    assert join(cut(text)) == text


def test_python_2_is_split_like_python_with_glue_for_missing_spaces() -> None:
    assert cut("print 'a'") == ("print", "'", "a", "'")
    assert cut("print'a',b") == ("print", GLUE, "'", "a", "'", ",", GLUE, "b")


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            *("x", "y1", "f(", "(", ")", "[", "]", "{", "}", ":", "\n", "    ", "\t", " "),
            *(",", ".", ";", "`", "'", '"', "'''", "r'", "f'", '\\"', "#", "\\", "\\\n"),
            *("=", "==", "-", "*", "**", "@", ":=", "->"),
            *("1", "2.5", ".5", "1e-5", "0777", "lambda ", "if ", "else ", "return ", "not ", "in ", "for "),
            *("def ", "class ", "pass", "print ", "None", "import ", "from ", "ü", "…", "\r\n", "\x0c", "\0"),
        ]
    ),
    max_size=12,
).map("".join)


@given(FRAGMENTS)
@example("\\\n\nx")
@example("    \\\n\r\n")
@example("\\\r\n")
def test_random_fragments_keep_their_syntax_tree_or_text(text: str) -> None:
    formatted = join(cut(text))
    if parse(text) is None:
        assert formatted == text
    else:
        assert same_tree(text, formatted)
        assert join(cut(formatted)) == formatted


@given(st.lists(st.sampled_from([*MARKERS, "\n", "'", "#", "(", "]", "x", "=", "<unk>", " "]), max_size=12))
@settings(max_examples=50)
def test_join_accepts_any_sequence_of_pieces(pieces: list[str]) -> None:
    def bare(text: str) -> str:
        return "".join(character for character in text if character not in {*MARKERS, " ", "\n"})

    assert bare(join(pieces)) == bare("".join(pieces))


def test_units_of_strings_and_comments() -> None:
    assert units("f(r'a b', \"\")  # c") == [
        *(("f",), ("(",), ("r'", "a b", "'"), (",",), ('"', "", '"'), (")",), ("#", " c"))
    ]
    assert units("'not closed") == [("'", "not closed")]
