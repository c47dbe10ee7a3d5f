"""Every shipped option, experiment and study composes, builds and takes a training step."""

import inspect
import json
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hydra.utils import get_object
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf

from attnlab.config.checks import allowed_settings, check_settings
from attnlab.config.compose import apply_overrides, compose_run
from attnlab.config.options import CONF
from attnlab.config.sections import SECTIONS
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UsageError, UserError
from attnlab.files.run_directory import prepare_run
from attnlab.training import build, components
from attnlab.training.build import build_corpus
from attnlab.training.loggers import MetricsFile, finish_wandb
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

NETWORK_GROUPS = ("tokenizer", "encoder", "bridge", "attention", "decoder", "readout")
VARIANTS = (
    "encoder.cell=gru",
    "decoder.cell=gru",
    "attention=multihead attention.heads=5 attention@attention.score=hard",
    "encoder=transformer decoder=transformer decoder.positions=rotary attention=additive",
    "bridge.activation=identity",
    "bridge.half=backward",
    "attention_bias=true",
    "normaliser.alpha=1.5",
    "normaliser.alpha=2",
    "readout.parts=[state]",
    "readout.maxout=3",
    "teacher_forcing.decay=linear",
    "teacher_forcing.decay=inverse_sigmoid",
    "tokenizer=subwords",
    "data.task=copy",
    "data.task=sort",
    "reranking.coverage_penalty=0.2",
)
"""Settings that choose between models or tasks within one option file."""
STEPS = list(OmegaConf.load(CONF / "experiment" / "conala_steps.yaml").steps)

Composed = Callable[..., DictConfig]


def options(*groups: str) -> list[str]:
    """All `group=option` overrides of these groups."""
    return [f"{group}={path.stem}" for group in groups for path in sorted((CONF / group).glob("*.yaml"))]


@pytest.fixture
def parallel(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    lines = [
        f"the {noun} {verb} {i}\tdas {noun} {verb}t {i}\n"
        for i, noun in enumerate("abcdef")
        for verb in ("is", "was")
    ]
    path.write_text("".join(lines))
    return path


@pytest.fixture
def conala(tmp_path: Path) -> Path:
    path = tmp_path / "conala-train.json"
    examples = [
        {"intent": f"sort {i}", "rewritten_intent": f"sort list `x{i}`", "snippet": f"sorted(x{i})"}
        for i in range(20)
    ]
    path.write_text(json.dumps([{**each, "question_id": i} for i, each in enumerate(examples)]))
    return path


def overrides_for(option: str, parallel: Path) -> list[str]:
    """The overrides that a tiny run with this option needs, the option included."""
    if option.startswith("tokenizer=") and option != "tokenizer=symbols":
        size = ["tokenizer.max_size=40"] if "=subwords" in option else []
        return ["data=pairs", f"data.path={parallel}", *option.split(), *size]
    if option == "decoder=transformer":  # the default attention has 4 heads
        return [*SYNTHETIC, option, "attention_size=4"]
    if option == "attention=multihead":  # the heads must divide attention_size, which is 5
        return [*SYNTHETIC, option, "attention.heads=5"]
    if option == "readout=marginal":
        return [*SYNTHETIC, "decoder=exact_hard", option]
    return [*SYNTHETIC, *option.split()]


@pytest.mark.slow
@pytest.mark.parametrize("option", [*options(*NETWORK_GROUPS), *VARIANTS])
def test_every_network_option_takes_a_training_step(option: str, composed: Composed, parallel: Path) -> None:
    module, data = build_all(composed(*TINY, *overrides_for(option, parallel)))
    batch = data.examples("train")[[0, 1, 2]]
    optimizer = module.make_optimizer(module.parameters())
    before = [parameter.clone() for parameter in module.parameters()]
    module.teacher_forced(batch).cross_entropy.backward()
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("option", options("optimizer", "scheduler"))
def test_every_optimizer_and_scheduler_trains(option: str, composed: Composed) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, option))
    trainer = Trainer(max_epochs=2, logger=False, **QUIET)
    trainer.fit(module, datamodule=data)
    assert trainer.global_step == 2 * 3


CALLBACKS = "callbacks.early_stopping.patience=5 callbacks.averaging.decay=0.99"


@pytest.mark.parametrize(
    "option",
    [
        pytest.param(option, marks=pytest.mark.slow) if option == "logger=wandb" else option
        for option in (*options("logger"), "logger=[wandb,tensorboard]", CALLBACKS)
        if option != "logger=mlflow"  # tests/training/test_loggers.py records a run with it
    ],
)
def test_every_callback_and_logger_is_built(option: str, composed: Composed) -> None:
    config = composed(*TINY, *SYNTHETIC, *option.split())
    run = prepare_run(config)
    loggers = components.build_loggers(config, run)
    callbacks = components.build_callbacks(config, run, MetricsFile(run.metrics), terminal=True)
    names = {type(part).__name__ for part in (*loggers, *callbacks)}
    finish_wandb(0)
    expected = {
        CALLBACKS: {"EarlyStopping", "WeightAveraging"},
        "logger=wandb": {"TolerantWandbLogger"},
        "logger=tensorboard": {"TensorBoardLogger"},
        "logger=[wandb,tensorboard]": {"TolerantWandbLogger", "TensorBoardLogger"},
    }
    assert expected.get(option, set()) | {"AttentionFigures", "AttentionWeights"} <= names
    assert option == CALLBACKS or not {"EarlyStopping", "WeightAveraging"} & names


def test_callbacks_that_are_null_are_off(composed: Composed) -> None:
    config = composed(*TINY, *SYNTHETIC, "callbacks.early_stopping=null", "callbacks.attention_figures=null")
    run = prepare_run(config)
    built = components.build_callbacks(config, run, MetricsFile(run.metrics), terminal=True)
    assert None not in built
    assert not {"EarlyStopping", "AttentionFigures"} & {type(part).__name__ for part in built}
    without = components.build_callbacks(
        composed(*TINY, *SYNTHETIC, "callbacks=[]"), run, MetricsFile(run.metrics), terminal=True
    )
    assert "AttentionWeights" not in {type(part).__name__ for part in without}


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(chosen, marks=() if chosen[0] == "encoder=bag" else pytest.mark.slow)
        for chosen in zip_longest(*map(options, ("encoder", "decoder", "readout")))
    ],
    ids=lambda chosen: str(chosen[0]),
)
def test_overfitting_combines_with_every_option(chosen: tuple[str | None, ...]) -> None:
    config = compose_run(["debug=overfit", *filter(None, chosen)])
    assert config.encoder.get("dropout", 0) == config.decoder.get("dropout", 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("option", options("data"))
def test_every_data_option_trains(option: str, composed: Composed, parallel: Path, conala: Path) -> None:
    path = SYNTHETIC
    if option == "data=pairs":
        path = (f"data.path={parallel}",)
    elif option.startswith("data=conala"):
        path = (f"data.path={conala}", "data.near_duplicates=null")  # all examples are near-duplicates
    elif option == "data=huggingface":
        rows = [line.split("\t")[:2] for line in parallel.read_text().splitlines()]
        records = [json.dumps({"de": source, "en": target}) for source, target in rows]
        (parallel.parent / "dataset").mkdir()
        (parallel.parent / "dataset" / "train.jsonl").write_text("\n".join(records))
        path = (f"data.dataset={parallel.parent}/dataset", "data.columns=[de,en]")
        path += ("data.val_split=null", "data.test_split=null")
    module, data = build_all(composed(*TINY, option, *path))
    trainer = Trainer(max_epochs=1, logger=False, **QUIET)
    trainer.fit(module, datamodule=data)
    assert float(trainer.callback_metrics["val/loss"]) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", [*options("experiment", "debug"), *(f"experiment=conala_steps step={step}" for step in STEPS)]
)
def test_every_experiment_takes_a_training_step(
    option: str, composed: Composed, parallel: Path, conala: Path
) -> None:
    data_path = {
        "attnlab.data.datasets.pairs.load_pairs": [
            *("data.train=null", "data.val=null", "data.test=null", "data.languages=null"),
            f"data.path={parallel}",
        ],
        "attnlab.data.conala.dataset.load_conala": [f"data.path={conala}", "data.near_duplicates=null"],
    }
    overrides = option.split()
    if composed(*overrides).data.get("features_column") is not None:
        lines = [line.replace("\t", "\tN;PL\t") for line in parallel.read_text().splitlines()]
        parallel.write_text("\n".join(lines) + "\n")
    target = composed(*overrides).data._target_
    module, data = build_all(composed(*overrides, *data_path.get(target, SYNTHETIC)))
    loss = module.teacher_forced(data.examples("train")[[0, 1, 2]]).cross_entropy
    loss.backward()
    assert loss.isfinite()


def test_overfitting_uses_the_first_training_pairs_only(composed: Composed) -> None:
    _, whole = build_all(composed(*TINY, *SYNTHETIC))
    smoothed = "loss.terms.label_smoothing.weight=0.1"
    assert build_all(composed(*TINY, *SYNTHETIC, smoothed))[0].loss_terms.keys() == {"label_smoothing"}
    module, data = build_all(composed(*TINY, *SYNTHETIC, "debug=overfit", "overfit=3"))
    assert data.pairs("train") == data.pairs("val") == whole.pairs("train")[:3]
    assert data.pairs("test") == []
    assert module.loss_terms == {}


@pytest.mark.parametrize("section", ["checkpoint", "callbacks.early_stopping"])
def test_metric_of_another_corpus_cannot_be_monitored(section: str, composed: Composed) -> None:
    wanted = (f"{section}.monitor=val/conala_bleu", f"{section}.mode=max")
    with pytest.raises(UserError, match=r"this corpus has no such metric; it has .*val/exact_match") as error:
        build_all(composed(*TINY, *SYNTHETIC, *wanted))
    assert str(error.value).startswith(f"{section}.monitor=val/conala_bleu: ")


def test_every_attention_can_be_swept_over_in_every_experiment() -> None:
    """An experiment that sets a key of one mechanism breaks all others: only one that composes it may."""
    for path in (CONF / "experiment").glob("*.yaml"):
        experiment = OmegaConf.load(path)
        composes = {"override /attention@attention.score": "shift"} in experiment.get("defaults", [])
        assert composes == ("attention" in experiment), path


def test_copy_ids_are_built_exactly_for_a_pointer_generator(composed: Composed) -> None:
    _, plain = build_all(composed(*TINY, *SYNTHETIC))
    _, copying = build_all(composed(*TINY, *SYNTHETIC, "readout=pointer_generator"))
    assert plain.examples("train")[[0]].copy_ids is None
    assert copying.examples("train")[[0]].copy_ids is not None


def test_tied_readout_needs_no_shared_vocabulary(composed: Composed) -> None:
    module, _ = build_all(composed(*TINY, *SYNTHETIC, "readout.tied=true"))
    assert module.network.readout.output.weight is module.network.target_embedding.table.weight


def test_word_alignments_need_a_word_tokenizer(composed: Composed, parallel: Path, tmp_path: Path) -> None:
    alignments = tmp_path / "alignments.txt"
    alignments.write_text("0-0 1-1\n" * 12)
    overrides = (*TINY, "data=pairs", f"data.path={parallel}", f"data.alignments_path={alignments}")
    build_all(composed(*overrides, "tokenizer=whitespace"))
    with pytest.raises(UserError, match=r"tokenizer=whitespace or"):
        build_all(composed(*overrides, "tokenizer=characters"))


def test_overrides_of_a_finished_run_apply_to_a_copy(composed: Composed) -> None:
    config = prepare_run(composed()).read_config()
    changed = apply_overrides(config, ["search.beam_size=5", "data.test_lengths=[13,24]"])
    assert (changed.search.beam_size, list(changed.data.test_lengths)) == (5, [13, 24])
    assert config.search.beam_size == 1
    # Settings that the run did not name can be given as well
    assert apply_overrides(config, ["search.top_k=5"]).search.top_k == 5
    for wrong, near in (("search.beem_size=5", "beam_size"), ("search.topk=5", "top_k")):
        with pytest.raises(UserError, match=rf"(?i)did you mean 'search.{near}'\?"):
            apply_overrides(config, [wrong])
    # Options are replaced before their settings change
    changed = apply_overrides(config, ["reranking.coverage_penalty=0.2", "reranking=python"])
    assert (changed.reranking.coverage_penalty, "accepts" in changed.reranking) == (0.2, True)
    assert apply_overrides(config, ["grammar=python"]).grammar._target_.endswith(".is_python")
    assert apply_overrides(config, ["grammar=none"]).grammar == {}


def test_every_argument_of_a_class_is_accepted_and_others_are_refused() -> None:
    config = compose_run(["trainer.limit_val_batches=3", "optimizer.amsgrad=true", "overfit=5"])
    check_settings(config)
    assert (config.trainer.limit_val_batches, config.optimizer.amsgrad, config.overfit) == (3, True, 5)
    for override, nearest in (
        ("trainer.limit_val_batch=3", "trainer.limit_val_batches"),
        ("optimizer.amsgard=true", "optimizer.amsgrad"),
        ("callbacks.early_stoping.patience=3", "callbacks.early_stopping"),
    ):
        with pytest.raises(UsageError, match=rf"Unknown setting .*Did you mean '{nearest}'"):
            check_settings(compose_run([override]))


def options_with_targets() -> list[tuple[str, str, dict[str, Any]]]:
    """The path, the target and the plain settings of each section with a `_target_` in `conf/`."""
    found: list[tuple[str, str, dict[str, Any]]] = []

    def walk(path: str, node: Any) -> None:
        if not isinstance(node, dict):
            return
        section = SECTIONS.get(path)
        target = node.get("_target_") or (section.target if section else None)
        if target is not None and "${" not in target:
            found.append((path, target, node))
        for key, child in node.items():
            walk(f"{path}.{key}".lstrip("."), child)

    for file in CONF.rglob("*.yaml"):
        group = file.parent.relative_to(CONF).as_posix()
        if not group.startswith(("hydra", "study", "experiment", "debug")):
            content = yaml.safe_load(file.read_text())
            walk("" if group == "." or "_global_" in file.read_text() else group, content)
    return found


def test_python_defaults_are_those_of_the_options() -> None:
    options: dict[tuple[str, str], list[Any]] = {}
    for _, target, node in options_with_targets():
        parameters = inspect.signature(get_object(target)).parameters
        for key in parameters.keys() & node.keys() - {"max_length"}:
            if target.startswith("attnlab.") and "${" not in str(node[key]):
                options.setdefault((target, key), []).append(node[key])
    assert len(options) > 60
    for (target, key), values in options.items():
        default = inspect.signature(get_object(target)).parameters[key].default
        default = list(default) if isinstance(default, tuple) else default
        required = default is inspect.Parameter.empty
        assert required or default in values or isinstance(values[0], dict), (target, key)


def test_every_setting_has_a_type() -> None:
    for path, target, node in options_with_targets():
        known = allowed_settings(path, {"_target_": target}).types
        settings = {key for key in node if not key.startswith("_") and f"{path}.{key}" not in SECTIONS}
        assert settings - {"defaults"} <= known.keys(), path
        for key in settings - {"defaults"}:
            needed = target.startswith("attnlab.") or isinstance(node[key], bool | int | float)
            assert known[key] is not Any or not needed, (path, key)


def test_backward_half_needs_a_bidirectional_encoder(composed: Composed) -> None:
    with pytest.raises(UserError, match=r"encoder\.bidirectional=true"):
        build_all(composed(*TINY, *SYNTHETIC, "bridge.half=backward", "encoder.bidirectional=false"))


def test_exact_hard_attention_needs_its_decoder_and_weights(composed: Composed) -> None:
    exact_hard = "decoder=exact_hard"
    for options in (["readout=marginal"], [exact_hard, "attention=final"], [exact_hard, "attention=none"]):
        with pytest.raises(UserError, match=r"needs .*an attention with weights"):
            build_all(composed(*TINY, *SYNTHETIC, *options))
    inflection = ["experiment=inflection", exact_hard, "data.train=tur.trn"]  # has a readout of its own
    tokens = symbols(["a b"], count=2)
    with pytest.raises(UserError, match=r"needs readout=marginal"):
        build.build_network(composed(*inflection), Vocabularies(tokens, tokens))
    network = build.build_network(composed(*inflection, "readout=marginal"), Vocabularies(tokens, tokens))
    assert network.latent_alignment


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attention", "overrides"),
    [
        ("additive", []),
        ("additive", ["decoder=luong"]),
        ("general", ["decoder=luong", "decoder.input_feeding=false"]),
        ("additive", ["encoder.cell=gru", "decoder.cell=gru", "readout.maxout=500", "decoder.layers=2"]),
        ("dot", ["readout.tied=true"]),
    ],
)
def test_none_matched_has_the_parameter_count_of_its_mechanism(
    attention: str, overrides: list[str], composed: Composed
) -> None:
    attentive, _ = build_all(composed(*SYNTHETIC, *overrides, f"attention={attention}"))
    matching = ["attention=none_matched", f"attention@attention.match={attention}"]
    matched, _ = build_all(composed(*SYNTHETIC, *overrides, *matching))
    assert matched.network.decoder.attention.context_size == 0
    assert matched.network.parameter_count == pytest.approx(attentive.network.parameter_count, rel=0.01)


def test_metrics_can_be_added_to_every_dataset(composed: Composed) -> None:
    config = composed(*TINY, "data=recall", "data.metrics=[wer,ser,wer]")
    assert build_corpus(config).metrics == ("wer", "ser")
    config.data.metrics = ["serr"]  # of a user's dataset, whose metrics are unknown until it is imported
    with pytest.raises(UserError, match="Unknown text metric 'serr'"):
        build_corpus(config)


def test_names_of_files_can_look_like_numbers(composed: Callable[..., DictConfig]) -> None:
    check_settings(
        composed("data=pairs", "data.train=a.tsv", "data.val=b.tsv", "data.test={2016: c.tsv, 2017: d.tsv}")
    )
