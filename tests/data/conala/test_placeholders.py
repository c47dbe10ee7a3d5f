import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.conala.dataset import Preparation
from attnlab.data.conala.placeholders import (
    Placeholders,
    RestorePlaceholders,
    quoted_texts,
    replace_in_code,
    replace_in_intent,
)
from attnlab.data.conala.python_code import cut, join, parse, same_tree


def restore(code: str, placeholders: Placeholders) -> str:
    return RestorePlaceholders(placeholders)(code)


def test_placeholders_of_an_example():
    intent, placeholders = replace_in_intent("sort list `names` by key 'age' and `names` by \"two words\"")
    assert intent == "sort list var_0 by key str_0 and var_0 by str_1"
    assert placeholders == (("var_0", "names"), ("str_0", "age"), ("str_1", "two words"))
    code = "sorted(names, key=lambda x: x['age'] + \"two words\" + 'ages')"
    replaced = "sorted(var_0, key=lambda x: x['str_0'] + \"str_1\" + 'ages')"
    assert replace_in_code(code, placeholders) == replaced
    assert restore(replaced, placeholders) == code


@pytest.mark.parametrize(
    ("intent", "texts"),
    [
        ("today's date of keys' names", []),
        ("the rows of `df`'s column 'A'", ["df", "A"]),
        ("run ''some command'' with ''", ["some command"]),
        ("the string u'x\\ny' split at ' ' and '  '", ["x\\ny", " ", "  "]),
        ("items `in` ` x ` and ` `", ["x"]),
        ("replace '\"' in \"it's\"", ['"', "it's"]),
        ("a list `[1, 'a']` and `x['b']`", ["[1, 'a']", "x['b']"]),
        ("never `closed and 'open", []),
    ],
)
def test_quoted_texts(intent: str, texts: list[str]):
    assert quoted_texts(intent) == texts


@pytest.mark.parametrize(
    ("quotes", "code", "replaced"),
    [
        ("`a` `a.b`", "a.b(a, x.b, ab)", "var_1(var_0, x.b, ab)"),
        ("`[1, 2]` `42`", "zip([1,2], [42])", "zip(var_0, [var_1])"),
        ("`(1, 2)` `,` `.`", "f(1, 2).g(',', (3, 4))", "f(1, 2).g('var_1', (3, 4))"),
        ("`(1, 2)` `a a`", "f((1, 2))", "f(var_0)"),
        ("`a a`", "a a a a a", "var_0 var_0 a"),
        ("'x' 'y'", "x['x'], r'y', '''y'''", "str_0['str_0'], r'str_1', '''str_1'''"),
        ("`'a b'`", "f('a b')", "f(var_0)"),
        ("`x`", "print x, 'x'", "print var_0, 'var_0'"),  # Python 2
        ("`x`", "x + var_0", "x + var_0"),  # contains a placeholder name: unchanged
        ("nothing", "print ( 'x' )", "print('x')"),
    ],
)
def test_replace_in_code(quotes: str, code: str, replaced: str):
    _, placeholders = replace_in_intent(quotes)
    assert replace_in_code(code, placeholders) == replaced
    if replaced != code:
        assert cut(restore(replaced, placeholders)) == cut(code)


def test_placeholder_names_in_the_intent_are_skipped():
    assert replace_in_intent("rename var_0 to `x` and `y`") == (
        "rename var_0 to var_1 and var_2",
        (("var_1", "x"), ("var_2", "y")),
    )


@pytest.mark.parametrize(
    ("text", "literal"),
    [("it's", '"it\'s"'), ('say "hi"', "'say \"hi\"'"), ("both ' and \"", "'both \\' and \"'")],
)
def test_restored_text_does_not_terminate_its_string(text: str, literal: str):
    assert restore("f('str_0')", (("str_0", text),)) == f"f({literal})"


def test_only_complete_placeholder_names_are_restored():
    placeholders = (("var_1", "x"), ("str_0", "a b"))
    assert restore("var_1 + var_11 + my_var_1 + var_0 + ' str_0 '", placeholders) == (
        "x + var_11 + my_var_1 + var_0 + ' a b '"
    )
    assert restore("var_0", ()) == "var_0"


TEXTS = st.sampled_from(
    ["x", "df.a", "'s'", "[1, 2]", "a b", ".", ",", "(", "=", "lambda", "x y", "\\d", "1", "it"]
)
CODE = st.sampled_from(
    [
        *("f(x, 'x')", "df.a[x] = 'a b'", "lambda x: [1, 2]", "re.sub('\\d', 's', it)", "print x, '.'"),
        *("x = (1, 1)\nif x:\n    y = [1,2]", "{x: 'x y', 'lambda': ','}", "f('(', ')', \"s\")"),
        *("f(x=1)", "a b c", "'it''s'"),
    ]
)


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["`", "'", '"'])), max_size=5), CODE)
@settings(max_examples=80)
def test_restoring_replaced_code_gives_the_original(spans: list[tuple[str, str]], code: str):
    intent = " and ".join(f"{mark}{text}{mark}" for text, mark in spans)
    _, placeholders = replace_in_intent(intent)
    replaced = replace_in_code(code, placeholders)
    assert cut(restore(replaced, placeholders)) == cut(code)
    assert (parse(replaced) is None) == (parse(code) is None)
    if parse(code):
        assert same_tree(restore(replaced, placeholders), code)
    assert join(cut(replaced)) == replaced


def test_placeholders_that_an_intent_lacks_are_excluded() -> None:
    pair = Preparation(slots=True)("sort `names` by 'age', not by str_7")
    assert pair.source == "sort var_0 by str_0, not by str_7"
    tokens = ["var_0", "var_1", "str_0", "str_1", "str_7", "str_70", "my_var_1", "sort"]
    assert [token for token in tokens if re.fullmatch(pair.excludes, token)] == ["var_1", "str_1", "str_70"]
    assert re.fullmatch(Preparation(slots=True)("sort a dict").excludes, "var_0")
    assert Preparation(slots=False)("sort `names`").excludes is None
