import random
from functools import partial

import numpy as np
import pytest

from attnlab.data.batch_sampler import TrainingBatchSampler
from attnlab.data.corpus import Corpus, Pair
from attnlab.data.datamodule import Seq2SeqData
from attnlab.data.examples import encode
from attnlab.data.tokenization.bpe_dropout import SampledExamples, Segmenter
from attnlab.data.tokenization.train import subwords, whitespace, words
from attnlab.data.tokenization.vocabularies import train_vocabularies
from attnlab.errors import UserError
from attnlab.types import EOS, PAD, SOS
from multi30k import sentences

PAIRS = [Pair(*texts) for texts in sentences()[:80]]
SOURCES = [pair.source for pair in PAIRS]


@pytest.mark.parametrize(
    "train",
    [partial(subwords, max_size=120), partial(words, max_size=120, subwords=True, drop=[])],
    ids=["bpe", "subwords of words"],
)
def test_segmentation_without_dropout_equals_the_library(train):
    tokenizer = train(SOURCES[:40])
    segmenter = Segmenter(tokenizer)
    texts = [*SOURCES, "ein völlig neues Wort: Xylophon", "a  b", " führend", "日本", "…"]
    assert [segmenter.encode(text, random.Random(0)) for text in texts] == tokenizer.encode_all(texts)


def test_dropout_of_one_gives_characters():
    tokenizer = subwords(SOURCES, max_size=120, dropout=1.0)
    spelled = tokenizer.tokens(Segmenter(tokenizer).encode("Ein Mann", random.Random(0)))
    assert spelled == list("▁Ein▁Mann")


def test_dropout_needs_byte_pair_encoding():
    with pytest.raises(UserError, match=r"set tokenizer\.subwords=true"):
        words(SOURCES, max_size=None, dropout=0.1)
    with pytest.raises(UserError, match=r"set tokenizer\.algorithm=bpe"):
        subwords(SOURCES, algorithm="unigram", max_size=120, dropout=0.1)
    tokenizer = whitespace(SOURCES, max_size=None)
    with pytest.raises(UserError, match="needs a tokenizer with byte-pair encoding"):
        Segmenter(tokenizer)


def sampled(seed: int = 0, **limits: int | None) -> SampledExamples:
    vocabularies = train_vocabularies(PAIRS, source=partial(subwords, max_size=120, dropout=0.3))
    settings = {"source_eos": True, "max_source_length": None, "max_target_length": None, **limits}
    return SampledExamples(
        encode(PAIRS, vocabularies, **settings), PAIRS, vocabularies, **settings, seed=seed
    )


def test_segmentations_depend_only_on_seed_epoch_and_sentence():
    examples = sampled()
    batch = examples[3, [5, 7, 11]]
    again = sampled()[3, [7, 5]]
    rows = {int(index): row for row, index in enumerate(batch.indices)}
    for row, index in enumerate(again.indices.tolist()):
        length = int(again.source_lengths[row])
        assert again.source[row, :length].tolist() == batch.source[rows[index], :length].tolist()
    assert not batch.source[:, :9].equal(examples[4, [5, 7, 11]].source[:, :9])
    assert not batch.source[:, :9].equal(sampled(seed=1)[3, [5, 7, 11]].source[:, :9])


def test_batches_have_ends_and_the_longest_target_first():
    examples = sampled(max_target_length=12)
    batch = examples[0, list(range(20))]
    lengths = (batch.target != 0).sum(1).tolist()
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) == 1 + 12
    for row, index in enumerate(batch.indices.tolist()):
        assert batch.target[row, 0] == SOS
        assert batch.target[row, lengths[row] - 1] == EOS
        assert batch.source[row, batch.source_lengths[row] - 1] == EOS
        decoded = examples._segmenters[0]._tokenizer.decode(batch.source[row].tolist())
        assert decoded == PAIRS[index].source


def test_segmentation_with_too_many_tokens_is_that_without_dropout():
    text = Pair("abcabcabc", "abcabcabc")
    train = partial(subwords, max_size=40, dropout=1.0)
    vocabularies = train_vocabularies([text], source=train, target=train)
    settings = {"source_eos": True, "max_source_length": None, "max_target_length": None}
    whole = encode([text], vocabularies, **settings)

    def lengths(*positions: int) -> tuple[int, int]:
        batch = SampledExamples(whole, [text], vocabularies, **settings, seed=0, positions=positions)[0, [0]]
        return int(batch.source_lengths), batch.target.size(1) - 1

    fewest = (int(whole.source_lengths[0]), int(whole.target_lengths[0]))
    assert max(fewest) < 5
    assert lengths(11, 11) == (11, 11)  # a mark of the start, nine characters and <eos>
    assert lengths(10, 11) == (fewest[0], 11)
    assert lengths(11, 10) == (11, fewest[1])


def test_evaluation_has_no_dropout():
    vocabularies = train_vocabularies(PAIRS, source=partial(subwords, max_size=120, dropout=0.9))
    data = Seq2SeqData(Corpus(train=PAIRS, val=PAIRS, test=PAIRS), vocabularies, batch_size=16)
    for stage, load in (("fit", data.val_dataloader), ("test", data.test_dataloader)):
        data.setup(stage)
        for batch in load():
            for row, index in enumerate(batch.indices.tolist()):
                ids = batch.source[row, : batch.source_lengths[row]].tolist()
                assert ids == vocabularies.source.encode(PAIRS[index].source)


def test_training_loader_draws_per_epoch_and_resumes_exactly():
    vocabularies = train_vocabularies(PAIRS, source=partial(subwords, max_size=120, dropout=0.3))
    corpus = Corpus(train=PAIRS, val=PAIRS[:8])

    def epochs(workers: int) -> list[list[tuple[int, list[int]]]]:
        data = Seq2SeqData(corpus, vocabularies, batch_size=16, workers=workers)
        data.setup("fit")
        loader = data.train_dataloader()
        loaded = []
        for epoch in range(2):
            loader.sampler.set_epoch(epoch)
            rows = [
                row
                for batch in loader
                for row in zip(batch.indices.tolist(), batch.source.tolist(), strict=True)
            ]
            loaded.append([(index, [id for id in ids if id != PAD]) for index, ids in rows])
        return loaded

    alone, in_workers = epochs(0), epochs(1)
    assert alone == in_workers
    assert dict(alone[0]) != dict(alone[1])
    sizes = [len(pair.source) for pair in PAIRS]
    lengths = np.array(sizes)
    batches = TrainingBatchSampler(lengths, lengths, size=16, with_epochs=True)
    batches.resume(1, 2)
    tagged = list(batches)
    assert [epoch for epoch, _ in tagged] == [1] * 3
