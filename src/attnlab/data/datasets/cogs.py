"""Sentences to logical forms in the manner of COGS (Kim & Linzen, 2020, arXiv 2010.05465).

The grammar is smaller than that of COGS. The logical forms have no variables (Qiu et al., 2022, arXiv
2112.07610), and `*` marks a definite noun: `the dog saw a cat on the mat` →
`see ( agent = * dog , theme = cat ( on = * mat ) )`.
"""

import random
from typing import NamedTuple

from attnlab.data.corpus import Corpus, Pair
from attnlab.data.splitting import draw_disjoint
from attnlab.settings import Count, Size

NAMES = ["Emma", "Liam", "Olivia", "Noah", "Ava", "Lucas"]
NOUNS = [
    *("boy", "girl", "dog", "cat", "horse", "bird", "teacher", "doctor", "baby", "prince"),
    *("cake", "book", "box", "ball", "hat", "cup", "mat"),
]
SUBJECT_NOUNS = ["hedgehog", "shark", "monkey", "poet"]  # Nouns that are only subjects in training
PLACES = ["table", "house", "garden", "car", "room", "stage", "bed", "boat"]
PREPOSITIONS = ["in", "on", "beside"]
INTRANSITIVE = {"slept": "sleep", "ran": "run", "smiled": "smile", "danced": "dance", "cried": "cry"}
TRANSITIVE = {
    **{"seen": "see", "eaten": "eat", "drawn": "draw"},
    **{"taken": "take", "known": "know", "held": "hold"},
}
PAST = {
    **{"see": "saw", "eat": "ate", "draw": "drew", "take": "took", "know": "knew", "hold": "held"},
    **{"bless": "blessed", "squeeze": "squeezed", "notice": "noticed"},
}
ACTIVE_VERBS = {"blessed": "bless", "squeezed": "squeeze", "noticed": "notice"}
"""Verbs, by their participles, that are only active in training."""
SPEECH = {"said": "say", "thought": "think", "hoped": "hope"}

Phrase = tuple[list[str], list[str]]  # Words, and tokens of their logical form


class Shape(NamedTuple):
    """Structure of a sentence."""

    clauses: int  # number of clauses that the main clause is embedded in
    verb: str  # "intransitive", "active" or "passive"
    subject_places: int = 0  # number of prepositional phrases inside the subject
    object_places: int = 0  # number of prepositional phrases inside the object
    # "object" for a noun that is only a subject in training, "passive" for a verb that is only active in
    # training; None for neither
    new: str | None = None


def generate_logical_forms(
    *, train_size: Size = 10_000, val_size: Size = 500, test_size: Size = 1000, seed: Count = 0
) -> Corpus:
    """Generate sentences and their logical forms.

    The test sets are:

    - same: sentences like those in training.
    - lexical: a noun that is only a subject in training is the object, or a verb that is only active is
      passive.
    - structural: a prepositional phrase inside the subject, or two or three of them inside the object, or two
      or three embedded clauses. In training, only objects have one, and there is at most one such clause.

    Args:
        train_size: number of training sentences.
        val_size: number of validation sentences.
        test_size: number of sentences of each test set.
        seed: seed of the generators; runs with different seeds share their data.
    """
    shapes = {"same": _known_shape, "lexical": _lexical_shape, "structural": _structural_shape}
    tests = {f"test/{name}": (test_size, shape) for name, shape in shapes.items()}
    sizes = {**tests, "val": (val_size, _known_shape), "train": (train_size, _known_shape)}
    drawn = draw_disjoint(sizes, _draw, seed=seed)
    test = {name: drawn[f"test/{name}"] for name in shapes}
    return Corpus(train=drawn["train"], val=drawn["val"], test=test)


def _known_shape(rng: random.Random) -> Shape:
    verb = rng.choice(("intransitive", "active", "active", "passive"))
    return Shape(rng.choice((0, 0, 1)), verb, object_places=rng.choice((0, 1)) if verb == "active" else 0)


def _lexical_shape(rng: random.Random) -> Shape:
    new = rng.choice(("object", "passive"))
    verb = "active" if new == "object" else "passive"
    return Shape(rng.choice((0, 0, 1)), verb, new=new)


def _structural_shape(rng: random.Random) -> Shape:
    match rng.choice(("subject", "places", "clauses")):
        case "subject":
            return _known_shape(rng)._replace(subject_places=1)
        case "places":
            return Shape(rng.choice((0, 0, 1)), "active", object_places=rng.choice((2, 3)))
        case _:
            return _known_shape(rng)._replace(clauses=rng.choice((2, 3)))


def _draw(rng: random.Random, shape: Shape) -> Pair:
    """Draw a sentence of a structure, and its logical form."""
    words, form = _clause(rng, shape)
    for _ in range(shape.clauses):
        verb, predicate = rng.choice([*SPEECH.items()])
        speaker, role = _noun_phrase(rng, [*NOUNS, *SUBJECT_NOUNS])
        words = [*speaker, verb, "that", *words]
        form = [predicate, "(", "agent", "=", *role, ",", "content", "=", *form, ")"]
    return Pair(" ".join(words), " ".join(form))


def _clause(rng: random.Random, shape: Shape) -> Phrase:
    subject_nouns = NOUNS if shape.verb == "passive" else [*NOUNS, *SUBJECT_NOUNS]
    subject, subject_form = _noun_phrase(rng, subject_nouns, shape.subject_places)
    if shape.verb == "intransitive":
        verb, predicate = rng.choice([*INTRANSITIVE.items()])
        return [*subject, verb], [predicate, "(", "agent", "=", *subject_form, ")"]
    if shape.verb == "passive":
        participle, predicate = rng.choice(
            [*(ACTIVE_VERBS if shape.new == "passive" else TRANSITIVE).items()]
        )
        agent, agent_form = _noun_phrase(rng, NOUNS)
        roles = ["theme", "=", *subject_form, ",", "agent", "=", *agent_form]
        return [*subject, "was", participle, "by", *agent], [predicate, "(", *roles, ")"]
    predicate = rng.choice([*PAST])
    theme, theme_form = _noun_phrase(
        rng,
        SUBJECT_NOUNS if shape.new == "object" else NOUNS,
        shape.object_places,
        common=shape.new == "object",
    )
    roles = ["agent", "=", *subject_form, ",", "theme", "=", *theme_form]
    return [*subject, PAST[predicate], *theme], [predicate, "(", *roles, ")"]


def _noun_phrase(rng: random.Random, nouns: list[str], places: int = 0, *, common: bool = False) -> Phrase:
    """Draw a name, or a noun with prepositional phrases that are each inside the one before."""
    if not common and places == 0 and rng.random() < 0.3:
        name = rng.choice(NAMES)
        return [name], [name]
    definite, noun = rng.random() < 0.5, rng.choice(nouns)
    words, form = ["the" if definite else "a", noun], ["*", noun] if definite else [noun]
    if places:
        preposition = rng.choice(PREPOSITIONS)
        inner, inner_form = _noun_phrase(rng, PLACES, places - 1, common=True)
        return [*words, preposition, *inner], [*form, "(", preposition, "=", *inner_form, ")"]
    return words, form
