import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.datasets.placeholders import name, put_back, quoted, take_out
from attnlab.data.tokenization.python_code import cut, join, parse, same_tree


def test_by_hand():
    intent, slots = name("sort list `names` by key 'age' and `names` by \"two words\"")
    assert intent == "sort list var_0 by key str_0 and var_0 by str_1"
    assert slots == (("var_0", "names"), ("str_0", "age"), ("str_1", "two words"))
    code = "sorted(names, key=lambda x: x['age'] + \"two words\" + 'ages')"
    taken = "sorted(var_0, key=lambda x: x['str_0'] + \"str_1\" + 'ages')"
    assert take_out(code, slots) == taken
    assert put_back(taken, slots) == code


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
def test_what_is_quoted(intent: str, texts: list[str]):
    assert quoted(intent) == texts


@pytest.mark.parametrize(
    ("quotes", "code", "taken"),
    [
        ("`a` `a.b`", "a.b(a, x.b, ab)", "var_1(var_0, x.b, ab)"),
        ("`[1, 2]` `42`", "zip([1,2], [42])", "zip(var_0, [var_1])"),
        ("`(1, 2)` `,` `.`", "f(1, 2).g(',', (3, 4))", "f(1, 2).g('var_1', (3, 4))"),
        ("`(1, 2)` `a a`", "f((1, 2))", "f(var_0)"),
        ("`a a`", "a a a a a", "var_0 var_0 a"),
        ("'x' 'y'", "x['x'], r'y', '''y'''", "str_0['str_0'], r'str_1', '''str_1'''"),
        ("`'a b'`", "f('a b')", "f(var_0)"),
        ("`x`", "print x, 'x'", "print var_0, 'var_0'"),  # Python 2
        ("`x`", "x + var_0", "x + var_0"),  # a name of its own: left alone
        ("nothing", "print ( 'x' )", "print('x')"),
    ],
)
def test_what_is_taken_out(quotes: str, code: str, taken: str):
    _, slots = name(quotes)
    assert take_out(code, slots) == taken
    if taken != code:
        assert cut(put_back(taken, slots)) == cut(code)


def test_a_name_that_the_intent_uses_itself_is_not_given():
    assert name("rename var_0 to `x` and `y`") == (
        "rename var_0 to var_1 and var_2",
        (("var_1", "x"), ("var_2", "y")),
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("it's", '"it\'s"'),
        ('say "hi"', "'say \"hi\"'"),
        ("both ' and \"", "'both \\' and \"'"),
    ],
)
def test_a_text_does_not_end_the_string_it_comes_into(text: str, written: str):
    assert put_back("f('str_0')", (("str_0", text),)) == f"f({written})"


def test_only_whole_names_that_were_given_are_put_back():
    slots = (("var_1", "x"), ("str_0", "a b"))
    assert put_back("var_1 + var_11 + my_var_1 + var_0 + ' str_0 '", slots) == (
        "x + var_11 + my_var_1 + var_0 + ' a b '"
    )
    assert put_back("var_0", ()) == "var_0"


TEXTS = st.sampled_from(
    ["x", "df.a", "'s'", "[1, 2]", "a b", ".", ",", "(", "=", "lambda", "x y", "\\d", "1", "it"]
)
CODE = st.sampled_from(
    [
        *(
            "f(x, 'x')",
            "df.a[x] = 'a b'",
            "lambda x: [1, 2]",
            "re.sub('\\d', 's', it)",
            "print x, '.'",
            "f(x=1)",
        ),
        *(
            "x = (1, 1)\nif x:\n    y = [1,2]",
            "a b c",
            "'it''s'",
            "{x: 'x y', 'lambda': ','}",
            "f('(', ')', \"s\")",
        ),
    ]
)


@given(st.lists(st.tuples(TEXTS, st.sampled_from(["`", "'", '"'])), max_size=5), CODE)
@settings(max_examples=80)
def test_what_was_taken_out_comes_back(spans: list[tuple[str, str]], code: str):
    intent = " and ".join(f"{mark}{text}{mark}" for text, mark in spans)
    _, slots = name(intent)
    taken = take_out(code, slots)
    assert cut(put_back(taken, slots)) == cut(code)
    assert (parse(taken) is None) == (parse(code) is None)
    if parse(code):
        assert same_tree(put_back(taken, slots), code)
    assert join(cut(taken)) == taken
