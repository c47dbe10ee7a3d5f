"""Associative recall and logical forms, checked by evaluators without code of the generators."""

import re
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnlab.data.corpus import Corpus
from attnlab.data.datasets import cogs, recall
from attnlab.errors import UserError


def recalled(seed: int = 0, **options: object) -> Corpus:
    shapes = {"train_shape": [16, 3], "test_shapes": {"same": [16, 3], "longer": [32, 6]}}
    sizes = {"vocabulary": 40, "train_size": 30, "val_size": 5, "test_size": 5}
    return recall.generate_recall(**{**sizes, **shapes, **options}, seed=seed)


def assert_disjoint(corpus: Corpus) -> None:
    sources = [{pair.source for pair in pairs} for pairs in corpus.splits.values()]
    assert len(set().union(*sources)) == sum(map(len, sources))


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_recall_asks_for_each_key_once_and_answers_with_its_value(seed: int) -> None:
    corpus = recalled(seed)
    for name, pairs in corpus.splits.items():
        for pair in pairs:
            source = pair.source.split()
            count = 6 if name == "test/longer" else 3
            assert len(source) == (32 if name == "test/longer" else 16)
            value_of = dict(re.findall(r"(k\d+) (v\d+)", pair.source))
            asked = re.findall(r"k\d+(?! v)(?=\s|$)", pair.source)
            assert len(value_of) == count
            assert sorted(asked) == sorted(value_of)
            assert pair.target.split() == [value_of[key] for key in asked]
            assert pair.alignment is not None
            assert [source[place] for place, _ in pair.alignment] == pair.target.split()
            assert [source[place - 1] for place, _ in pair.alignment] == asked
    assert_disjoint(corpus)
    assert corpus == recalled(seed)
    assert corpus != recalled(seed + 1)


@pytest.mark.parametrize("size", [(64, 4), (128, 8), (256, 16), (3, 1)])
def test_recall_in_the_published_sizes(size: tuple[int, int]) -> None:
    corpus = recalled(vocabulary=8192, train_shape=[*size], test_shapes={"same": [*size]})
    assert {len(pair.source.split()) for pair in corpus.train} == {size[0]}
    assert {len(pair.target.split()) for pair in corpus.train} == {size[1]}


@pytest.mark.parametrize("shape", [[8, 3], [63, 21], [16], [16, 0]])
def test_impossible_shapes_are_rejected(shape: list[int]) -> None:
    with pytest.raises(UserError, match=r"data.train_shape=.*at most 20 pairs"):
        recalled(train_shape=shape, test_shapes={})


logical_forms = partial(cogs.generate_logical_forms, train_size=1500, val_size=50, test_size=200)


def read_form(form: str) -> str:
    """Translate a logical form back to its sentence."""
    tokens = form.split()

    def phrase() -> str:
        definite = tokens[0] == "*" and bool(tokens.pop(0))
        noun = tokens.pop(0)
        text = noun if noun[0].isupper() else f"{'the' if definite else 'a'} {noun}"
        if tokens[:1] == ["("]:
            _, preposition, _ = (tokens.pop(0) for _ in range(3))
            text = f"{text} {preposition} {phrase()}"
            assert tokens.pop(0) == ")"
        return text

    def clause() -> str:
        verb, _ = tokens.pop(0), tokens.pop(0)
        roles = {}
        while True:
            role, _ = tokens.pop(0), tokens.pop(0)
            roles[role] = clause() if role == "content" else phrase()
            if tokens.pop(0) == ")":
                break
        words = [
            form for verbs in (cogs.INTRANSITIVE, cogs.SPEECH) for form, name in verbs.items() if name == verb
        ]
        if "content" in roles:
            return f"{roles['agent']} {words[0]} that {roles['content']}"
        if "theme" not in roles:
            return f"{roles['agent']} {words[0]}"
        if next(iter(roles)) == "agent":
            return f"{roles['agent']} {cogs.PAST[verb]} {roles['theme']}"
        participles = {**cogs.TRANSITIVE, **cogs.ACTIVE_VERBS}
        participle = next(form for form, name in participles.items() if name == verb)
        return f"{roles['theme']} was {participle} by {roles['agent']}"

    return clause()


SUBJECT_NOUN = "|".join(cogs.SUBJECT_NOUNS)
NEW_ROLE = re.compile(
    rf"({'|'.join(cogs.PAST.values())}|by) (a|the) ({SUBJECT_NOUN})|was ({'|'.join(cogs.ACTIVE_VERBS)})"
)


def is_new_structure(sentence: str) -> bool:
    """Return whether a sentence has two clauses inside others, two places, or a place in its subject."""
    places = re.findall(r" (?:in|on|beside) ", sentence)
    clause = sentence.rpartition(" that ")[2]
    verbs = "|".join([*cogs.PAST.values(), *cogs.INTRANSITIVE, "was"])
    subject = re.split(rf" (?:{verbs})\b", clause)[0]
    return sentence.count(" that ") > 1 or len(places) > 1 or bool(re.search(r" (in|on|beside) ", subject))


def test_logical_forms_and_generalisation_splits_of_cogs() -> None:
    corpus = logical_forms()
    for name, pairs in corpus.splits.items():
        for pair in pairs:
            assert read_form(pair.target) == pair.source
            assert bool(NEW_ROLE.search(pair.source)) == (name == "test/lexical"), pair.source
            assert is_new_structure(pair.source) == (name == "test/structural"), pair.source
    assert_disjoint(corpus)
    training = {word for pair in corpus.train for word in pair.source.split()}
    tested = {
        word for name in corpus.test_splits for pair in corpus.splits[name] for word in pair.source.split()
    }
    # "was blessed" has the form of "blessed" in the active voice
    assert tested <= training
    assert corpus == logical_forms()
    assert corpus.test != logical_forms(seed=1).test
