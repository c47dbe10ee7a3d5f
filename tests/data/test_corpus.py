import pytest

from attnlab.data.corpus import Corpus
from attnlab.errors import UserError
from digits import numbered


def test_training_needs_training_and_validation_pairs():
    some = numbered(1)
    assert Corpus(train=some, val=some, test=[]).metrics == ()
    with pytest.raises(UserError, match=r"training split is empty \(0 training, 1 validation and 2 test"):
        Corpus(train=[], val=some, test=numbered(2))
    with pytest.raises(UserError, match="validation split is empty"):
        Corpus(train=some, val=[], test=some)
    assert Corpus(test=some, evaluation_only=True).test == some


def test_test_sets_are_splits_with_their_names():
    one, two = numbered(1), numbered(2)
    assert Corpus(train=two, val=one).test_splits == ()
    assert Corpus(train=two, val=one, test=one).splits == {"train": two, "val": one, "test": one}
    corpus = Corpus(train=two, val=one, test={"flickr2016": one, "mscoco": two})
    assert corpus.test_splits == ("test/flickr2016", "test/mscoco")
    assert corpus.splits["test/mscoco"] == two


@pytest.mark.parametrize("name", ["", "a/b", "../a", "attention", ".hidden", "a b"])
def test_invalid_names_of_test_sets_are_rejected(name: str):
    with pytest.raises(UserError, match="not a valid name of a test set"):
        Corpus(train=numbered(1), val=numbered(1), test={name: numbered(1)})
