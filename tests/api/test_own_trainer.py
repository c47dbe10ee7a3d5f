"""The module and the data of `attnlab.build` with a Trainer of the user."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from lightning import Trainer
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger
from omegaconf import OmegaConf
from torch.utils.data import DataLoader, Dataset

import attnlab
from attnlab.config.options import CONF
from attnlab.data.corpus import Pair
from attnlab.training.losses.label_smoothing import LabelSmoothing
from tiny_runs import OWN_TRAINER, SYNTHETIC, TINY, build_all

TRAIN = [("3 4", "4 3"), ("5 6 3", "3 6 5"), ("4 5", "5 4"), ("6 3 4", "4 3 6"), ("5 3", "3 5")]
VAL = [("3 5", "5 3"), ("4 6", "6 4")]
SIZES = [word for word in TINY if not word.startswith("trainer.")]


def test_pairs_are_trained_and_translated() -> None:
    module, data = attnlab.build(
        SIZES, train=TRAIN, val=VAL, attention="dot", decoder="luong", tokenizer="characters"
    )
    assert data.pairs("train") == [Pair(*pair) for pair in TRAIN]
    before = [parameter.detach().clone() for parameter in module.parameters()]
    trainer = Trainer(max_epochs=2, **OWN_TRAINER)
    trainer.fit(module, data)
    assert trainer.global_step == 4  # two batches of at most four pairs in each of two epochs
    assert torch.isfinite(trainer.callback_metrics["val/loss"])
    assert any(not old.equal(new) for old, new in zip(before, module.parameters(), strict=True))
    module.train()
    predictions = module.translate(["3 4 5", "6"])
    assert module.network.training
    assert [prediction.source for prediction in predictions] == ["3 4 5", "6"]
    assert predictions == attnlab.load(module).translate(["3 4 5", "6"])
    (translated,) = trainer.predict(module, data)  # type: ignore[misc]
    assert [prediction.references[0] for prediction in sorted(translated, key=lambda each: each.index)] == [
        target for _, target in VAL
    ]


def test_build_equals_the_builders_of_training() -> None:
    overrides = [*TINY, *SYNTHETIC, "seed=3"]
    module, data = attnlab.build(overrides)
    torch.manual_seed(3)
    expected, _ = build_all(attnlab.compose(overrides))
    for name, value in expected.state_dict().items():
        assert value.equal(module.state_dict()[name]), name
    sizes = {split: len(pairs) for split, pairs in data.corpus.splits.items()}
    assert sizes == {"train": 12, "val": 4, "test": 4}


@pytest.mark.parametrize("readout", ["softmax", "pointer_generator"])
def test_forward_returns_the_logits_of_every_position(readout: str) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC, f"readout={readout}"])
    module.eval()
    batch = data.examples("train")[[0, 1, 2]]
    logits = module(batch)
    assert logits.shape[:2] == batch.labels.shape
    torch.testing.assert_close(logits[batch.labels != 0], module.teacher_forced(batch).logits)


def test_a_logger_of_lightning_receives_the_scores(tmp_path: Path) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    logger = CSVLogger(tmp_path)
    Trainer(**{**OWN_TRAINER, "logger": logger, "max_epochs": 1}).fit(module, data)
    header = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/loss", "val/loss", "val/exact_match"} <= {*header}
    recorded = (Path(logger.log_dir) / "hparams.yaml").read_text()
    assert OmegaConf.create(recorded).encoder == module.config.encoder


def test_incomplete_pairs_are_refused() -> None:
    with pytest.raises(attnlab.UserError, match="both train and val"):
        attnlab.build(train=TRAIN)


class Pairs(Dataset[dict[str, str]]):
    """A torch dataset, which does not end iteration by itself."""

    def __len__(self) -> int:
        return len(TRAIN)

    def __getitem__(self, index: int) -> dict[str, str]:
        source, target = TRAIN[index % len(TRAIN)]
        return {"id": "0", "target": target, "source": source}


@pytest.mark.parametrize(
    "data",
    [
        iter(TRAIN),
        Pairs(),
        pd.DataFrame(TRAIN, columns=["a", "b"]),
        pd.DataFrame([(1, target, source) for source, target in TRAIN], columns=["id", "target", "source"]),
        [{"translation": dict(zip(("de", "en"), pair, strict=True))} for pair in TRAIN],
    ],
    ids=["iterator", "torch", "two columns", "named columns", "translation"],
)
def test_pairs_are_read_from_other_data(data: Any) -> None:
    _, built = attnlab.build(SIZES, train=data, val=VAL)
    assert [(pair.source, pair.target) for pair in built.pairs("train")] == TRAIN


def test_pairs_are_read_from_a_dataset_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    sources, targets = zip(*TRAIN, strict=True)
    named = datasets.Dataset.from_dict({"id": [*range(5)], "target": targets, "source": sources})
    for data in (named, named.to_iterable_dataset(), named.with_format("numpy")):
        _, built = attnlab.build(SIZES, train=data, val=VAL)
        assert [(pair.source, pair.target) for pair in built.pairs("train")] == TRAIN


def test_items_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(attnlab.UserError, match=r"train\[1\] is \('3', 4\)"):
        attnlab.build(SIZES, train=[TRAIN[0], ("3", 4)], val=VAL)
    with pytest.raises(attnlab.UserError, match=r"train\[0\] is '3\\t4'"):
        attnlab.build(SIZES, train=["3\t4"], val=VAL)
    with pytest.raises(attnlab.UserError, match="val is a dict: give pairs of texts"):
        attnlab.build(SIZES, train=TRAIN, val={"source": ["3"], "target": ["4"]}, test=None)


def test_settings_as_arguments_equal_overrides() -> None:
    by_name = attnlab.compose(
        encoder={"size": 5, "cell": "gru"},
        target_tokenizer="characters",
        seed=np.int64(2),
        name="a b",
        search={"max_length": None},
    )
    overrides = ["encoder.size=5", "encoder.cell=gru", "tokenizer@target_tokenizer=characters", "seed=2"]
    assert by_name == attnlab.compose([*overrides, "name='a b'", "search.max_length=null"])


def test_module_is_restored_with_its_loss_terms_and_vocabularies(tmp_path: Path) -> None:
    settings = ["loss=[label_smoothing]", "optimizer.lr=0.5"]
    module, data = attnlab.build([*TINY, *SYNTHETIC, *settings])
    trainer = Trainer(**OWN_TRAINER, max_epochs=1)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    restored = attnlab.Seq2SeqModule.load_from_checkpoint(tmp_path / "a.ckpt")
    assert isinstance(restored.loss_terms["label_smoothing"], LabelSmoothing)
    assert restored.lr == 0.5
    assert restored.translate("3 4 5") == module.translate("3 4 5")
    (score,) = Trainer(**OWN_TRAINER).validate(restored, data, verbose=False)
    assert score == trainer.validate(module, data, verbose=False)[0]


def test_overfitting_repeats_the_same_batches() -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC, "batching.bucket_by_length=true"])
    seen: list[list[int]] = []
    record = LambdaCallback(on_train_batch_start=lambda *given: seen.append(given[2].indices.tolist()))
    Trainer(**OWN_TRAINER, max_epochs=3, overfit_batches=2, callbacks=[record]).fit(module, data)
    assert len(seen) == 6
    assert seen[:2] == seen[2:4] == seen[4:]


def test_a_learning_rate_of_the_tuner_is_that_of_optimizer_and_schedule() -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC, "scheduler.schedule.pct_start=0.5"])
    module.lr, data.batch_size = 0.25, 6
    trainer = Trainer(**OWN_TRAINER, max_epochs=1)
    trainer.fit(module, data)
    assert trainer.num_training_batches == 2
    assert trainer.lr_scheduler_configs[0].scheduler.base_lrs != [0.001]
    assert trainer.optimizers[0].param_groups[0]["max_lr"] == 0.25


@pytest.mark.parametrize(
    "choice",
    [
        f"{group}={path.stem}"
        for group in (
            *("attention", "bridge", "decoder", "embedding", "encoder", "features", "optimizer"),
            *("readout", "tokenizer"),
        )
        for path in sorted((CONF / group).glob("*.yaml"))
    ],
)
def test_every_option_can_be_instantiated_in_a_notebook(choice: str) -> None:
    group = choice.partition("=")[0]
    with initialize_config_module("attnlab.conf", version_base="1.3"):
        config = compose("train", overrides=[choice])
    assert callable(instantiate(config[group]))


def test_validation_before_training_changes_nothing() -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    Trainer(**OWN_TRAINER).validate(module, data, verbose=False)
    Trainer(**OWN_TRAINER, max_epochs=1).fit(module, data)
    untouched, data = attnlab.build([*TINY, *SYNTHETIC])
    Trainer(**OWN_TRAINER, max_epochs=1).fit(untouched, data)
    for name, value in untouched.state_dict().items():
        assert value.equal(module.state_dict()[name]), name


def test_a_network_that_predicted_is_trained_with_dropout() -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    module.model()
    modes: list[bool] = []
    record = LambdaCallback(on_train_batch_start=lambda *given: modes.append(given[1].network.training))
    Trainer(**OWN_TRAINER, max_epochs=1, callbacks=[record]).fit(module, data)
    assert modes == [True] * 3


def test_data_with_other_vocabularies_are_refused() -> None:
    module, _ = attnlab.build(SIZES, train=TRAIN, val=VAL)
    _, other = attnlab.build(SIZES, train=[*TRAIN, ("7 3", "3 7")], val=VAL)
    with pytest.raises(attnlab.UserError, match=r"other vocabularies .*init\.from"):
        Trainer(**OWN_TRAINER).validate(module, other, verbose=False)


def test_a_second_training_with_the_data_of_a_resumed_one_starts_at_the_first_batch(tmp_path: Path) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    first = Trainer(**OWN_TRAINER, max_steps=1)
    first.fit(module, data)
    first.save_checkpoint(tmp_path / "middle.ckpt")
    Trainer(**OWN_TRAINER, max_epochs=1).fit(module, data, ckpt_path=tmp_path / "middle.ckpt")
    trainer = Trainer(**OWN_TRAINER, max_epochs=1)
    trainer.fit(module, data)
    assert trainer.global_step == 3


def test_the_learning_rate_of_a_checkpoint_can_be_replaced(tmp_path: Path) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    trainer = Trainer(**OWN_TRAINER, max_epochs=1)
    trainer.fit(module, data)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert attnlab.Seq2SeqModule.load_from_checkpoint(tmp_path / "a.ckpt", lr=0.25).lr == 0.25
    with pytest.raises(TypeError, match="unknown"):
        attnlab.Seq2SeqModule.load_from_checkpoint(tmp_path / "a.ckpt", unknown=1)


def test_a_loader_that_separates_the_references_of_an_input_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module, data = attnlab.build(SIZES, train=TRAIN, val=[("3 4", "4 3"), ("5 6", "6 5"), ("3 4", "3 4")])
    Trainer(**OWN_TRAINER).validate(module, data, verbose=False)
    assert "in another batch" not in caplog.text
    loader = DataLoader(data.examples("val"), batch_size=2)
    Trainer(**OWN_TRAINER).validate(module, loader, verbose=False)
    assert "val: 1 outputs are of an input in another batch" in caplog.text


@pytest.mark.parametrize("setting", [{"limit_val_batches": 0}, {"val_check_interval": 5}])
def test_plateau_needs_a_validation_in_each_epoch(setting: dict[str, Any]) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC, "scheduler=plateau"])
    trainer = Trainer(**OWN_TRAINER, max_epochs=1, check_val_every_n_epoch=None, **setting)
    with pytest.raises(attnlab.UserError, match="scheduler=plateau"):
        trainer.fit(module, data)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"limit_train_batches": 0}, "limit_train_batches=0 leaves nothing to train"),
        ({"val_check_interval": 5}, r"val_check_interval` \(5\) must be less than or equal"),
    ],
)
def test_numbers_of_batches_that_do_not_fit_are_named(setting: dict[str, Any], message: str) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC])
    with pytest.raises(attnlab.UserError, match=message):
        Trainer(**OWN_TRAINER, max_epochs=1, **setting).fit(module, data)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_exact_hard_attention_trains_in_other_precisions(precision: str) -> None:
    module, data = attnlab.build([*TINY, *SYNTHETIC, "decoder=exact_hard"])
    Trainer(**OWN_TRAINER, max_epochs=1, precision=precision).fit(module, data)


@pytest.mark.parametrize("attention", ["none", "final"])
def test_a_pointer_without_weights_is_refused(attention: str) -> None:
    with pytest.raises(attnlab.UserError, match="copies what the attention selects"):
        attnlab.build([*TINY, *SYNTHETIC, "readout=pointer_generator", f"attention={attention}"])


@pytest.mark.parametrize("method", ["gradient", "integrated_gradients", "erasure"])
def test_an_output_that_does_not_depend_on_the_source_has_no_attributions(method: Any) -> None:
    sizes = {"encoder": {"size": 8}, "decoder": {"size": 16, "heads": 2}}
    module, _ = attnlab.build(["decoder=transformer", "attention=none"], train=TRAIN, val=VAL, **sizes)
    weights = module.model().explain("3 4 5", "5 4", method).weights
    assert weights is not None
    assert abs(weights).max() < 1e-6


def test_a_prefix_longer_than_the_output_is_refused() -> None:
    module, _ = attnlab.build(SIZES, train=TRAIN, val=VAL)
    model = module.model()
    assert model.translate(["3 4"], prefixes=["5 4"], max_length=2)[0].tokens[:2] == ["5", "4"]
    with pytest.raises(attnlab.UserError, match=r"a prefix has 3 tokens, .*search\.max_length=2"):
        model.translate(["3 4"], prefixes=["5 4 3"], max_length=2)


def test_a_sentence_without_output_is_named() -> None:
    model = attnlab.build(SIZES, train=TRAIN, val=VAL)[0].model()
    (unknown,) = model.vocabularies.source.encode("4")
    with torch.no_grad():
        model.network.source_embedding.table.weight[unknown] = torch.nan
    with pytest.raises(attnlab.UserError, match=r"sentences\[1\] has no output"):
        model.translate(["3 5", "4 3", "5 6"], beam_size=3)


def test_wrong_arguments_of_a_model_are_named() -> None:
    model = attnlab.build(SIZES, train=TRAIN, val=VAL)[0].model()
    with pytest.raises(attnlab.UserError, match="nbest=0"):
        model.translate("3 4", nbest=0)
    with pytest.raises(attnlab.UserError, match=r"pairs\[0\]: the target or prefix is None"):
        model.score([("3 4", None)])  # type: ignore[list-item]
