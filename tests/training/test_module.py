"""The LightningModule: loss, logging, evaluation, and settings of the trainer."""

import math
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from lightning import Callback, Trainer
from omegaconf import DictConfig, OmegaConf
from torchmetrics.functional.text.helper import _edit_distance

from attnlab.decoding.translator import Translator
from attnlab.errors import UserError
from attnlab.files.metrics_file import read_metrics
from attnlab.files.predictions import read_predictions
from attnlab.files.run_directory import Run
from attnlab.training import components
from attnlab.training.callbacks import progress
from attnlab.training.callbacks.checkpoints import LastCheckpoint
from attnlab.training.callbacks.guard import Guard
from attnlab.training.callbacks.outputs import AttentionFigures, AttentionWeights, Predictions
from attnlab.training.loggers import MetricsFile
from attnlab.training.recipe import log_untrained
from attnlab.types import PAD, Batch
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all, training_loss

Composed = Callable[..., DictConfig]


def pad(batch: Batch, columns: int) -> Batch:
    """Return the batch with more padding on both sides."""
    return batch._replace(source=F.pad(batch.source, (0, columns)), target=F.pad(batch.target, (0, columns)))


@pytest.mark.parametrize("settings", [(), ("loss.terms.label_smoothing.weight=0.2",), ("decoder=luong",)])
def test_loss_does_not_depend_on_padding(composed: Composed, settings: tuple[str, ...]) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, *settings))
    batch = data.examples("train")[[0, 1, 2]]
    torch.testing.assert_close(training_loss(module, batch), training_loss(module, pad(batch, 5)))


def test_loss_is_the_mean_over_tokens_not_sentences(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    examples = data.examples("train")
    parts = [examples[[place]] for place in (0, 1, 2)]
    losses = torch.stack([training_loss(module, part) for part in parts])
    counts = torch.tensor([float((part.labels != 0).sum()) for part in parts])
    together = training_loss(module, examples[[0, 1, 2]])
    torch.testing.assert_close(together, (losses * counts).sum() / counts.sum())


def test_label_smoothing_matches_a_manual_calculation(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "loss.terms.label_smoothing.weight=0.1"))
    batch = data.examples("train")[[0, 1]]
    outputs = module.teacher_forced(batch)
    log_p, labels = outputs.logits.log_softmax(dim=-1), outputs.labels
    expected = -(0.9 * log_p[torch.arange(len(labels)), labels] + 0.1 * log_p.mean(dim=-1)).mean()
    torch.testing.assert_close(training_loss(module, batch), expected)
    smoothed = F.cross_entropy(outputs.logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(training_loss(module, batch), smoothed)


def test_label_smoothing_of_a_copying_readout_ignores_other_sentences(composed: Composed) -> None:
    """A hundred more padded source positions, from which nothing can be copied, change nothing."""
    overrides = (*TINY, *SYNTHETIC, "readout=pointer_generator", "loss.terms.label_smoothing.weight=0.1")
    module, data = build_all(composed(*overrides))
    batch = data.examples("train")[[0, 1, 2]]
    padded = pad(batch, 100)._replace(copy_ids=F.pad(batch.copy_ids, (0, 100)))
    torch.testing.assert_close(training_loss(module, batch), training_loss(module, padded))
    outputs = module.teacher_forced(batch)
    log_p, labels = outputs.logits, outputs.labels
    uniform = log_p[:, : module.vocabularies.target.size].mean(dim=-1)
    expected = -(0.9 * log_p[torch.arange(len(labels)), labels] + 0.1 * uniform).mean()
    torch.testing.assert_close(training_loss(module, batch), expected)


def test_reference_is_not_read_without_teacher_forcing(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "teacher_forcing.start=0"))
    batch = data.examples("train")[[0, 1]]
    other = batch._replace(target=batch.target.clone())
    other.target[:, 1] = 49  # would be read under teacher forcing
    forced = torch.zeros_like(batch.inputs, dtype=torch.bool)
    one, two = (module.network(b, forced) for b in (batch, other))
    torch.testing.assert_close(one.features, two.features)


def test_teacher_forcing_decays_with_the_optimizer_steps(composed: Composed) -> None:
    """Three steps of two batches per epoch and a linear decay from 1 to 0 in three steps."""
    decay = ("teacher_forcing.decay=linear", "teacher_forcing.steps=3", "data.train_size=24")
    module, data = build_all(composed(*TINY, *SYNTHETIC, *decay))
    calls: list[Any] = []
    module.network.register_forward_pre_hook(lambda network, inputs: calls.append((network.training, inputs)))
    Trainer(max_epochs=2, logger=False, accumulate_grad_batches=2, **QUIET).fit(module, datamodule=data)
    forced = [rest for is_training, (_, *rest) in calls if is_training]
    assert len(forced) == 12
    assert [mask for mask in forced[:2] if mask != [None]] == []  # all tokens are read from the reference
    assert 0 < sum(mask.float().mean() for [mask] in forced[2:6]) < 4
    assert not any(mask.any() for [mask] in forced[6:])


@pytest.mark.parametrize("epochs", [4, -1])
def test_epochs_of_the_halving_scheduler_do_not_depend_on_the_number_of_steps(
    composed: Composed, epochs: int
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "scheduler=halving"))
    trainer = Trainer(max_epochs=epochs, max_steps=3, logger=False, accumulate_grad_batches=2, **QUIET)
    trainer.fit(module, datamodule=data)
    scheduler: Any = trainer.lr_scheduler_configs[0].scheduler
    assert scheduler.steps_per_epoch == 2  # of 3 batches


def test_plateau_counts_validations(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, "scheduler=plateau"))
    trainer = Trainer(max_epochs=5, check_val_every_n_epoch=2, logger=False, **QUIET)
    trainer.fit(module, datamodule=data)
    scheduler: Any = trainer.lr_scheduler_configs[0].scheduler
    assert scheduler.last_epoch == 2  # validations


class LossRecorder(Callback):
    """Records the loss of each step and its number of tokens."""

    def __init__(self) -> None:
        self.losses: list[tuple[float, int]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.losses.append((float(outputs["loss"]), int((batch.labels != PAD).sum())))


def test_losses_are_logged_every_n_steps_and_as_epoch_means_over_tokens(
    composed: Composed, tmp_path: Path
) -> None:
    """Three batches per epoch, with a validation after each."""
    module, data = build_all(composed(*TINY, *SYNTHETIC, "optimizer.lr=0.05"))
    recorder, metrics = LossRecorder(), MetricsFile(tmp_path / "metrics.csv")
    settings = {**QUIET, "log_every_n_steps": 2, "val_check_interval": 1, "max_epochs": 2}
    Trainer(logger=metrics, callbacks=[recorder], **settings).fit(module, datamodule=data)
    logged = read_metrics(metrics.path)
    losses = [loss for loss, _ in recorder.losses]
    assert logged["train/loss"] == [(step, losses[step]) for step in (1, 3, 5)]
    means = [
        sum(loss * tokens for loss, tokens in epoch) / sum(tokens for _, tokens in epoch)
        for epoch in (recorder.losses[:3], recorder.losses[3:])
    ]
    assert [step for step, _ in logged["train/loss_epoch"]] == [2, 5]
    assert [value for _, value in logged["train/loss_epoch"]] == pytest.approx(means)


def test_throughput_counts_optimizer_steps_and_the_tokens_of_all_processes(
    composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eleven batches of four pairs, in steps of 4, 4 and 3, by a clock that advances by 1/4 s per batch.

    The first two steps are logged.
    """
    clock = count(step=0.25)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(clock))
    lengths = ("data.train_lengths=[5,5]", "data.train_size=44")
    for shards in ("null", "2"):
        module, data = build_all(composed(*TINY, *SYNTHETIC, *lengths, f"batching.shards={shards}"))
        metrics = MetricsFile(tmp_path / f"{shards}.csv")
        settings = {**QUIET, "log_every_n_steps": 2, "accumulate_grad_batches": 4, "max_epochs": 1}
        trainer = Trainer(logger=metrics, callbacks=[progress.Throughput()], **settings)
        trainer.strategy.reduce = lambda tensor, **_: 3 * tensor  # as of three processes
        trainer.fit(module, datamodule=data)
        logged = {
            name: value for name, [(_, value)] in read_metrics(metrics.path).items() if "through" in name
        }
        batch = 4 * (5 + 6)  # sources, and targets with EOS
        assert logged == {
            "throughput/tokens_per_second": 4 * batch * (3 if shards == "null" else 1),
            "throughput/steps_per_second": 1.0,
        }


@pytest.mark.parametrize(
    "clip", [{}, {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}], ids=str
)
@pytest.mark.parametrize("factor", [math.inf, math.nan])
def test_gradient_that_is_not_finite_stops_before_the_next_step(
    composed: Composed, factor: float, clip: dict[str, Any]
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    factors = iter([1.0, factor, factor])  # of the gradient in the backward pass: the loss stays finite
    bias = next(parameter for name, parameter in module.named_parameters() if "bias" in name)
    bias.register_hook(lambda gradient: gradient * next(factors))
    trainer = Trainer(max_epochs=2, logger=False, callbacks=[Guard()], **QUIET, **clip)
    with pytest.raises(UserError, match=r"The gradient norm is (inf|nan) at step 2: training diverged"):
        trainer.fit(module, datamodule=data)
    assert trainer.global_step == 2  # of three in an epoch


@pytest.mark.parametrize("settings", [(), ("search.beam_size=2", "decoder=luong", "attention=general")])
def test_evaluation_encodes_and_searches_each_batch_once(
    composed: Composed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...]
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, *settings))
    calls: Counter[str] = Counter()

    def watch(owner: Any, name: str) -> None:
        method = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    watch(module.network, "encode")
    watch(Translator, "search")
    run = Run(tmp_path)
    outputs = [AttentionFigures(run=run, count=1), AttentionWeights(run=run, count=3)]
    callbacks = [Predictions(run.predictions), *outputs]
    Trainer(logger=False, callbacks=callbacks, **QUIET).test(module, datamodule=data, verbose=False)
    assert calls == {"encode": 1, "search": 1}  # 4 sentences are one batch
    written = read_predictions(run.attention)
    assert [prediction.index for prediction in written] == [0, 1, 2]
    assert all(prediction.weights is not None for prediction in written)
    texts = [prediction.hypothesis for prediction in read_predictions(run.predictions / "test.jsonl")]
    assert [prediction.hypothesis for prediction in written] == texts[:3]
    assert {path.name for path in run.figures.iterdir()} == {"attention-1.png", "attention-1.svg"}


@pytest.mark.parametrize("settings", [(), ("decoder=exact_hard", "readout=marginal")])
def test_evaluation_after_a_step_that_is_too_large_stops(
    composed: Composed, settings: tuple[str, ...]
) -> None:
    """A step can overflow the weights although its loss and its gradient are finite."""
    module, data = build_all(composed(*TINY, *SYNTHETIC, *settings))
    next(module.network.encoder.parameters()).data.fill_(math.nan)
    with pytest.raises(UserError, match=r"The output of the network is nan at step 0: training diverged"):
        Trainer(logger=False, **QUIET).validate(module, datamodule=data, verbose=False)


def test_heat_maps_are_drawn_while_training(composed: Composed, tmp_path: Path) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))  # has a test split
    run = Run(tmp_path)
    figures = AttentionFigures(run=run, count=1, every_n_epochs=1)
    Trainer(max_epochs=1, logger=False, callbacks=[figures], **QUIET).fit(module, datamodule=data)
    assert (run.figures / "attention-1.png").exists()


@pytest.mark.parametrize(("minutes", "steps"), [(0, [1, 2, 3]), (60, [3]), (None, [3])])
def test_checkpoints_within_an_epoch_are_saved_by_the_clock(
    composed: Composed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    minutes: float | None,
    steps: list[int],
) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    run, saved = Run(tmp_path), []
    callback = LastCheckpoint(run, MetricsFile(run.metrics), every_minutes=minutes)
    trainer = Trainer(max_epochs=1, logger=False, callbacks=[callback], **QUIET)
    monkeypatch.setattr(trainer, "save_checkpoint", lambda path, **_: saved.append(trainer.global_step))
    trainer.fit(module, datamodule=data)
    assert saved == steps  # of three batches


def test_evaluation_equals_separate_encoding_for_each_pass(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    trainer = Trainer(logger=False, **QUIET)
    (metrics,) = trainer.test(module, datamodule=data, verbose=False)
    module.eval()
    batch = data.examples("test")[[output.index for output in module.outputs]]
    with torch.no_grad():
        outputs = module.teacher_forced(batch)
        alone = module.translator(module.network, batch, data.pairs("test"))
    assert metrics["test/loss"] == pytest.approx(outputs.cross_entropy.item())
    assert [prediction.hypothesis for prediction in module.outputs] == [row[0].hypothesis for row in alone]


def test_class_metrics_are_of_the_next_token(composed: Composed) -> None:
    name = "torchmetrics.classification.MulticlassAccuracy"
    module, data = build_all(composed(*TINY, *SYNTHETIC, f"data.metrics=[{name}]", "batching.batch_size=2"))
    trainer = Trainer(logger=False, **QUIET)
    for _ in range(2):  # the second evaluation keeps nothing of the first one
        (values,) = trainer.test(module, datamodule=data, verbose=False)
    with torch.no_grad():
        outputs = module.eval().teacher_forced(data.examples("test")[[*range(len(data.pairs("test")))]])
    predicted, labels = outputs.logits.argmax(dim=1), outputs.labels
    recalls = [
        (predicted[labels == each] == each).sum() / max(1, (labels == each).sum())
        for each in torch.cat([predicted, labels]).unique()
    ]
    assert values[f"test/{name}"] == pytest.approx(torch.stack(recalls).mean().item())


def test_class_metrics_need_a_readout_that_does_not_copy(composed: Composed) -> None:
    metrics = "data.metrics=[torchmetrics.classification.MulticlassAccuracy]"
    with pytest.raises(UserError, match="MulticlassAccuracy needs a readout that does not copy"):
        build_all(composed(*TINY, *SYNTHETIC, "readout=pointer_generator", metrics))


LETTERS = "a\tA A\nb\tB\na\tX\nb\tB\nc c\tC\n"
"""Pairs of three inputs: "a" has two targets, and "b" has one twice."""


def read_letters(composed: Composed, folder: Path, *settings: str) -> DictConfig:
    (folder / "pairs.tsv").write_text(LETTERS)
    files = [f"data.{split}={folder}/pairs.tsv" for split in ("train", "val", "test")]
    return composed(*TINY, "data=pairs", "tokenizer=whitespace", *files, *settings)


def test_pairs_with_one_source_are_one_input_with_several_references(
    composed: Composed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = ("optimizer.lr=0.03", "data.metrics=[wer,ser]", "batching.batch_size=5")
    module, data = build_all(read_letters(composed, tmp_path, *settings))
    trainer = Trainer(logger=False, max_steps=80, limit_val_batches=0, **QUIET)
    trainer.fit(module, datamodule=data)
    module.kept_weights = 3
    (values,) = Trainer(logger=False, **QUIET).test(module, datamodule=data, verbose=False)
    assert [(output.index, output.line, output.references) for output in module.outputs] == [
        (0, 1, ("A A", "X")),
        (1, 2, ("B",)),
        (4, 5, ("C",)),
    ]
    assert module.outputs[0].hypothesis in ("A A", "X")
    assert (values["test/wer"], values["test/exact_match"], values["test/ser"]) == (0, 1, 0)
    # Under teacher forcing, the scores are those of the target that equals the output, and of the others once
    nearest = 0 if module.outputs[0].hypothesis == "A A" else 2
    with torch.no_grad():
        outputs = module.eval().teacher_forced(data.examples("test")[[nearest, 1, 4]])
    assert values["test/loss"] == pytest.approx(outputs.cross_entropy.item())
    assert values["test/token_accuracy"] == 1
    message = "the test data has 3 inputs in 5 pairs: pairs with the same source are scored as one input"
    assert sum(text.startswith(message) for text in caplog.messages) == 1


def test_a_pair_that_is_not_the_nearest_changes_no_score(composed: Composed, tmp_path: Path) -> None:
    """All metrics equal those of the pairs that are nearest to the outputs of an untrained network."""
    module, data = build_all(read_letters(composed, tmp_path, "batching.batch_size=2"))
    (values,) = Trainer(logger=False, **QUIET).test(module, datamodule=data, verbose=False)
    distances = [
        _edit_distance(module.outputs[0].hypothesis.split(), target) for target in (["A"] * 2, ["X"])
    ]
    dropped = 0 if distances[1] < distances[0] else 2
    rows = [row for number, row in enumerate(LETTERS.splitlines()) if number not in (dropped, 3)]
    (tmp_path / "nearest.tsv").write_text("\n".join(rows))
    _, data = build_all(read_letters(composed, tmp_path, f"data.test={tmp_path}/nearest.tsv"))
    (expected,) = Trainer(logger=False, **QUIET).test(module, datamodule=data, verbose=False)
    assert expected == pytest.approx(values)


def test_weights_are_kept_for_the_requested_sentences_only(composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC))
    module.kept_weights = 2
    Trainer(logger=False, **QUIET).test(module, datamodule=data, verbose=False)
    kept = [output.weights for output in module.outputs]
    assert [weights is not None for weights in kept] == [True, True, False, False]
    assert all(weights.base is None for weights in kept if weights is not None)  # no view of the whole batch


def test_bleu_has_the_tokenizer_of_the_setting_or_of_the_script_of_the_references(
    composed: Composed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{letter} b\t我们今天去北京\n" for letter in ascii_lowercase), encoding="utf-8"
    )
    chinese = (*TINY, "data=pairs", f"data.path={tmp_path}/pairs.tsv")
    tokenizers = {}
    for name, settings in {
        "guess": chinese,
        "set": (*chinese, "bleu.tokenize=char"),
        "latin": (*TINY, *SYNTHETIC),
    }.items():
        tokenizers[name] = build_all(composed(*settings))[0].bleu_tokenizer
    assert tokenizers == {"guess": "zh", "set": "char", "latin": "13a"}
    assert [text for text in caplog.messages if text.startswith("bleu")] == [
        "bleu.tokenize=zh: the references have no spaces between words"
    ]


@pytest.mark.parametrize("section", ["checkpoint", "callbacks.early_stopping"])
def test_monitored_score_that_the_texts_do_not_define_is_an_error(composed: Composed, section: str) -> None:
    monitored = (f"{section}.monitor=val/bleu", f"{section}.mode=max")

    def check(length: int) -> None:
        config = composed(*TINY, *SYNTHETIC, *monitored, f"data.val_lengths=[{length},{length}]")
        module, data = build_all(config)
        components.check_monitored(config, module, data)

    check(4)
    with pytest.raises(UserError) as error:
        check(3)
    assert str(error.value) == (
        f"{section}.monitor=val/bleu is undefined for the validation data: no reference has 4 tokens, the "
        f"length of a 4-gram. Set {section}.monitor=val/loss and {section}.mode=min"
    )


@pytest.mark.parametrize(("limit", "is_defined"), [("1", False), ("0.3", False), ("2", True), ("1.0", True)])
def test_monitored_score_must_be_defined_by_the_batches_of_a_validation(
    composed: Composed, limit: str, is_defined: bool
) -> None:
    """The first of two batches has the sources of 1 and 2 tokens."""
    settings = ("data.val_lengths=[1,4]", "data.val_size=8", "batching.batch_size=4")
    monitor = ("checkpoint.monitor=val/bleu", "checkpoint.mode=max", f"trainer.limit_val_batches={limit}")
    config = composed(*TINY, *SYNTHETIC, *settings, *monitor)
    module, data = build_all(config)
    message = f"validation data with trainer.limit_val_batches={limit}: no refer"
    with nullcontext() if is_defined else pytest.raises(UserError, match=message):
        components.check_monitored(config, module, data)


LAST = "was best at the last of 96 steps: more may help (trainer.max_steps, trainer.max_epochs)"


@pytest.mark.parametrize(
    ("mode", "logged", "message"),
    [
        ("min", {"val/x": [3.0, 2.0, 1.0]}, f"val/x {LAST}"),
        ("min", {"val/x": [3.0, 1.0, 2.0]}, None),
        ("min", {"val/x": [3.0, 1.0, 1.0]}, None),
        ("max", {"val/x": [0.1, 0.2]}, f"val/x {LAST}"),
        ("max", {"val/x": [0.2, 0.1]}, None),
        ("min", {"val/x": [1.0]}, None),
        ("min", {"val/x": [2.0, 1.0], "val/exact_match": [0.9985]}, f"val/x {LAST}"),
        ("min", {"val/x": [2.0, 1.0], "val/exact_match": [0.9995]}, None),
        ("min", {"val/x": [100.0], "val/loss": [3.0]}, None),
        ("min", {"val/x": [100.0, 100.0], "val/loss": [3.0, 2.0]}, f"val/loss {LAST}"),
    ],
)
def test_run_whose_last_validation_was_the_best_or_the_only_one_is_logged(
    mode: str, logged: dict[str, list[float]], message: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monitored = OmegaConf.create({"monitor": "val/x", "mode": mode})
    log_untrained(monitored, {name: list(enumerate(values)) for name, values in logged.items()}, 96)
    assert caplog.messages == ([] if message is None else [message])


def test_strategies_of_notebooks_are_refused(composed: Composed, tmp_path: Path) -> None:
    config = composed(*TINY, "trainer.strategy=ddp_spawn")
    with pytest.raises(UserError, match=r"ddp_spawn is for notebooks.*set trainer\.strategy=ddp"):
        components.build_trainer(config, Run(tmp_path), [], [])


@pytest.mark.parametrize("source_eos", [True, False])
def test_attention_metrics_count_no_eos(source_eos: bool, composed: Composed) -> None:
    """The weights of EOS, and those with which EOS is predicted, belong to no word."""
    module, data = build_all(
        composed(*TINY, *SYNTHETIC, f"batching.source_eos={source_eos}", "attention=mean")
    )
    Trainer(logger=False, **QUIET).validate(module, data, verbose=False)
    logged = {name: value.item() for name, value in module.trainer.callback_metrics.items()}
    words = [(len(pair.source.split()), len(pair.target.split())) for pair in data.pairs("val")]
    assert len({S for S, _ in words}) > 1
    steps = sum(T for _, T in words)
    # A uniform weight is 1 / S at each of T steps; S counts EOS, and the means do not
    expected = {
        "entropy": sum(T * math.log(S + source_eos) for S, T in words) / steps,
        "coverage": sum(S * min(1, T / (S + source_eos)) for S, T in words) / sum(S for S, _ in words),
    }
    assert {name: logged[f"attention/{name}"] for name in expected} == pytest.approx(expected)
