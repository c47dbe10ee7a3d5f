"""Settings reach the objects that use them: each test fails if its setting has no effect."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lightning import Trainer
from lightning.pytorch.callbacks import ModelSummary
from omegaconf import DictConfig

from attnlab.config.construct import construct
from attnlab.errors import UserError, needs
from attnlab.files.predictions import Prediction
from attnlab.files.run_directory import prepare_run
from attnlab.nn.embedding import TokenEmbedding
from attnlab.training import build, components
from attnlab.training.callbacks.reproducibility import Reproducible
from attnlab.training.checkpoints import read_checkpoint
from attnlab.training.components import AtomicCheckpointIO
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

Composed = Callable[..., DictConfig]


def draws(seed: int = 0, batch: int = 0, rank: int = 0) -> torch.Tensor:
    """Random numbers after the callback has seeded for a batch."""
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(total_batch_idx=batch))
    trainer: Any = SimpleNamespace(fit_loop=loop, global_rank=rank)
    Reproducible(seed).on_train_batch_start(trainer, None, None, 0)
    return torch.rand(4)


def test_every_batch_rank_and_run_seed_has_its_own_random_numbers() -> None:
    assert torch.equal(draws(), draws())
    for other in (draws(batch=1), draws(rank=1), draws(seed=1)):
        assert not torch.equal(draws(), other)


def test_evaluation_has_the_same_random_numbers_at_every_step() -> None:
    callback, trainer, network = Reproducible(3), SimpleNamespace(global_rank=0), None
    numbers = []
    for start in (callback.on_validation_start, callback.on_test_start) * 2:
        start(trainer, network)
        numbers.append(torch.rand(4))
    assert all(torch.equal(each, numbers[0]) for each in numbers[1:])
    assert torch.equal(numbers[0], draws(seed=3))


@pytest.mark.parametrize("profiler", [None, "simple"])
def test_trainer_profiles_into_the_run_directory_and_prints_no_summary(
    profiler: str | None, composed: Composed
) -> None:
    config = composed(*TINY, *SYNTHETIC, *([] if profiler is None else [f"+trainer.profiler={profiler}"]))
    run = prepare_run(config)
    trainer = components.build_trainer(config, run, [], [])
    assert not any(isinstance(callback, ModelSummary) for callback in trainer.callbacks)
    folder = trainer.profiler.dirpath
    assert folder == (None if profiler is None else run.directory)


def test_error_of_a_constructor_names_its_class() -> None:
    with pytest.raises(UserError, match=r"^datetime.date: year 0 is out of range$"):
        construct({"_target_": "datetime.date", "year": 0, "month": 1, "day": 1})


def test_missing_package_of_an_extra_is_named_but_not_a_missing_module_of_attnlab() -> None:
    with pytest.raises(UserError, match=r"^tuning: pip install 'attnlab\[tune\]'$"), needs("tune", "tuning"):
        raise ModuleNotFoundError("No module", name="optuna")
    with pytest.raises(ModuleNotFoundError), needs("tune", "tuning"):
        raise ModuleNotFoundError("No module", name="attnlab.cli.absent")


def test_vocabularies_contain_words_of_the_training_split_only(tmp_path: Path, composed: Composed) -> None:
    for name in ("train", "val", "test"):
        (tmp_path / f"{name}.tsv").write_text(f"common {name}\tgemeinsam {name}_de\n")
    files = [f"data.{name}={tmp_path}/{name}.tsv" for name in ("train", "val", "test")]
    config = composed(*TINY, "data=pairs", "tokenizer=whitespace", *files)
    corpus = build.build_corpus(config)
    source, target = build.build_vocabularies(config, corpus)
    assert source.id_of("train") is not None
    assert target.id_of("train_de") is not None
    for name in ("val", "test"):
        assert source.id_of(name) is None
        assert target.id_of(f"{name}_de") is None


class Payload:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (np.testing.assert_equal, (0, 1))


@pytest.mark.parametrize("read", [read_checkpoint, AtomicCheckpointIO().load_checkpoint])
def test_checkpoints_with_objects_are_rejected_without_running_them(
    tmp_path: Path, read: Callable[[Path], Any]
) -> None:
    file = tmp_path / "evil.ckpt"
    torch.save({"state_dict": Payload()}, file)
    with pytest.raises(AssertionError):  # the payload runs where objects are allowed
        torch.load(file, weights_only=False)
    with pytest.raises(UserError, match="Python objects other than tensors"):
        read(file)


SEARCH: dict[str, Any] = {
    "beam_size": 4,
    "length_penalty": 0.3,
    "early_stopping": True,
    "max_length": 17,
    "min_length": 2,
    "no_repeat_ngram_size": 3,
    "prefix_size": 1,
    "seed": 5,
    "precision": "bf16",
}


def test_search_settings_reach_the_translator(composed: Composed) -> None:
    config = composed(*TINY, *SYNTHETIC, *(f"search.{name}={value}" for name, value in SEARCH.items()))
    module, _ = build_all(config)
    assert {name: getattr(module.translator, name) for name in SEARCH} == SEARCH


def test_length_penalty_changes_the_scores_of_the_search(composed: Composed) -> None:
    """Scores of greedy search are log p / n ** penalty for n tokens with EOS."""
    scores = []
    for penalty in (0.0, 1.0):
        torch.manual_seed(0)
        config = composed(*TINY, *SYNTHETIC, f"search.length_penalty={penalty}", "search.max_length=3")
        module, data = build_all(config)
        batch = data.examples("val")[[0, 1]]
        pairs = [data.pairs("val")[index] for index in (0, 1)]
        scores.append([best for best, *_ in module.translator(module.network.eval(), batch, pairs)])
    for total, mean in zip(*scores, strict=True):
        assert total.tokens == mean.tokens
        length = total.score / mean.score
        assert length == pytest.approx(round(length))
        assert round(length) in (len(mean.tokens), len(mean.tokens) + 1)
        assert length > 1


def test_coverage_penalty_reorders_hypotheses(composed: Composed) -> None:
    def hypothesis(text: str, score: float, weights: list[list[float]]) -> Prediction:
        record = {"index": 0, "source": "a b", "references": ("x y",), "hypothesis": text}
        return Prediction(**record, score=score, weights=np.array(weights))

    covers = hypothesis("both", -1.0, [[0.9, 0.1], [0.1, 0.9]])
    repeats = hypothesis("first twice", -0.9, [[0.9, 0.1], [0.9, 0.1]])
    for penalty, expected in ((0.0, ["first twice", "both"]), (0.5, ["both", "first twice"])):
        config = composed(*TINY, *SYNTHETIC, f"reranking.coverage_penalty={penalty}")
        module, _ = build_all(config)
        ranked = [repeats, covers]
        for rerank in module.translator.reranking:
            ranked = rerank(ranked)
        assert [prediction.hypothesis for prediction in ranked] == expected


@pytest.mark.parametrize(("algorithm", "accumulated"), [("norm", 1), ("norm", 3), ("value", 1)])
def test_gradients_are_clipped_after_they_are_normalised(
    composed: Composed, algorithm: str, accumulated: int
) -> None:
    """One step of SGD with learning rate 1 moves the weights by the clipped gradient."""
    overrides = ("optimizer=sgd", "optimizer.lr=1", "scheduler=constant")
    module, data = build_all(composed(*TINY, *SYNTHETIC, *overrides))
    before = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    trainer = Trainer(
        **{"max_steps": 1, "logger": False, "gradient_clip_val": 0.01, **QUIET},
        gradient_clip_algorithm=algorithm,
        accumulate_grad_batches=accumulated,
    )
    trainer.fit(module, datamodule=data)
    after = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    change = after - before
    assert module.gradient_norm > 0.01
    size = change.norm() if algorithm == "norm" else change.abs().max()
    assert size == pytest.approx(0.01, rel=1e-2)


def test_embeddings_and_encoders_receive_the_tokenizer_of_their_side(composed: Composed) -> None:
    marked = ("embedding._target_=custom_parts.MarkedEmbedding", "+embedding.token='5'")
    module, data = build_all(composed(*TINY, *SYNTHETIC, *marked, "embedding.size=9"))
    for embedding, tokenizer in zip(
        (module.network.source_embedding, module.network.target_embedding), data.vocabularies, strict=True
    ):
        assert embedding.marks.nonzero().tolist() == [[tokenizer.id_of("5"), 0]]
        assert embedding.width == 10
    module, data = build_all(composed(*TINY, *SYNTHETIC, *marked, "embedding@target_embedding=table"))
    assert type(module.network.target_embedding) is TokenEmbedding
    assert module.network.target_embedding.width == 64


def test_one_table_for_both_sides_has_no_second_embedding(composed: Composed) -> None:
    shared = ("shared_vocabulary=true", "embedding.shared=true")
    module, _ = build_all(composed(*SYNTHETIC, *shared))
    assert module.network.source_embedding is module.network.target_embedding
    with pytest.raises(UserError, match="leave out target_embedding"):
        build_all(composed(*SYNTHETIC, *shared, "embedding@target_embedding=table"))
