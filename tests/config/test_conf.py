"""Every option of every group composes, builds, and takes one training step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lightning import Trainer
from omegaconf import DictConfig, OmegaConf

from attnlab.config import build
from attnlab.config.compose import CONF, all_keys, apply_overrides, suggest
from attnlab.errors import UserError
from attnlab.runs.directory import prepare
from attnlab.runs.identity import identify
from attnlab.training.loggers import MetricsFile, finish_wandb
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

NETWORK_GROUPS = (
    "tokenizer",
    "encoder",
    "bridge",
    "attention",
    "normaliser",
    "decoder",
    "readout",
    "teacher_forcing",
)


def options(*groups: str) -> list[str]:
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
        {
            "intent": f"sort {i}",
            "rewritten_intent": f"sort list `x{i}`",
            "snippet": f"sorted(x{i})",
            "question_id": i,
        }
        for i in range(20)
    ]
    path.write_text(json.dumps(examples))
    return path


def words_for(option: str, parallel: Path) -> list[str]:
    """What an option needs beside itself."""
    group, name = option.split("=")
    if group == "tokenizer" and name != "symbols":
        return [
            "data=pairs",
            f"data.path={parallel}",
            option,
            *(["tokenizer.max_size=40"] if name in ("bpe", "unigram") else []),
        ]
    if option == "attention=multihead":  # attention_size is 5
        return [*SYNTHETIC, option, "attention.heads=5"]
    if option == "readout=maxout":
        return [*SYNTHETIC, option, "readout.maxout=3"]
    return [*SYNTHETIC, option]


@pytest.mark.parametrize("option", options(*NETWORK_GROUPS))
def test_every_network_option_takes_a_step(
    option: str, composed: Callable[..., DictConfig], parallel: Path
) -> None:
    config = composed(*TINY, *words_for(option, parallel))
    module, data = build_all(config)
    batch = data.examples("train")[[0, 1, 2]]
    optimizer = module.make_optimizer(module.parameters())
    before = [parameter.clone() for parameter in module.parameters()]
    _, logits, labels = module.decode(batch)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, module.parameters(), strict=True))


@pytest.mark.parametrize("option", options("optimizer", "scheduler"))
def test_every_optimizer_and_scheduler_steps(option: str, composed: Callable[..., DictConfig]) -> None:
    module, data = build_all(composed(*TINY, *SYNTHETIC, option))
    trainer = Trainer(max_epochs=2, logger=False, **QUIET)
    trainer.fit(module, datamodule=data)
    assert trainer.global_step == 2 * 3


@pytest.mark.parametrize("option", options("callbacks", "logger"))
def test_every_callback_and_logger_is_built(option: str, composed: Callable[..., DictConfig]) -> None:
    config = composed(*TINY, *SYNTHETIC, option)
    run = prepare(config)
    vocabularies = build.build_vocabularies(config, build.build_corpus(config))
    loggers = build.build_loggers(config, run)
    metrics = MetricsFile(run.metrics)
    callbacks = build.build_callbacks(config, run, vocabularies, metrics, terminal=True)
    names = {type(part).__name__ for part in (*loggers, *callbacks)}
    finish_wandb(0)
    expected = {
        "callbacks=default": {"Pictures", "AttentionWeights"},
        "callbacks=averaging": {"Pictures", "EarlyStopping", "WeightAveraging"},
        "callbacks=early_stopping": {"Pictures", "EarlyStopping"},
        "logger=wandb": {"ForgivingWandbLogger"},
        "logger=tensorboard": {"TensorBoardLogger"},
        "logger=many": {"ForgivingWandbLogger", "TensorBoardLogger"},
    }
    assert expected.get(option, set()) <= names


@pytest.mark.parametrize("option", options("data"))
def test_every_kind_of_data_trains(
    option: str, composed: Callable[..., DictConfig], parallel: Path, conala: Path
) -> None:
    path = SYNTHETIC
    if option == "data=pairs":
        path = (f"data.path={parallel}",)
    elif option.startswith("data=conala"):
        path = (f"data.path={conala}", "data.near_duplicates=null")  # they are all alike
    module, data = build_all(composed(*TINY, option, *path))
    trainer = Trainer(max_epochs=1, logger=False, **QUIET)
    trainer.fit(module, datamodule=data)
    assert float(trainer.callback_metrics["val/loss"]) > 0


@pytest.mark.parametrize("option", options("experiment"))
def test_every_experiment_builds_and_takes_a_step(
    option: str, composed: Callable[..., DictConfig], parallel: Path, conala: Path
) -> None:
    settings = composed(option)
    target = settings.data._target_
    path = {
        "attnlab.data.datasets.parallel_text.load": [f"data.path={parallel}"],
        "attnlab.data.datasets.conala.load": [
            f"data.path={conala}",
            "data.near_duplicates=null",
        ],
    }
    config = composed(option, *path.get(target, SYNTHETIC))
    module, data = build_all(config)
    _, logits, labels = module.decode(data.examples("train")[[0, 1, 2]])
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    assert loss.isfinite()


def test_every_attention_can_be_swept_over_in_every_experiment() -> None:
    """An experiment that set a key of one mechanism would break all others."""
    for path in (CONF / "experiment").glob("*.yaml"):
        assert "attention" not in OmegaConf.load(path), path


def test_a_tied_readout_needs_one_vocabulary_only_for_shared_embeddings(
    composed: Callable[..., DictConfig],
) -> None:
    module, _ = build_all(composed(*TINY, *SYNTHETIC, "readout.tied=true"))
    assert module.network.readout.output.weight is module.network.target_embedding.table.weight
    with pytest.raises(UserError, match="shared_vocabulary=true"):
        build_all(composed(*TINY, *SYNTHETIC, "embedding.shared=true"))
    module, _ = build_all(composed(*TINY, *SYNTHETIC, "embedding.shared=true", "shared_vocabulary=true"))
    assert module.network.source_embedding is module.network.target_embedding


def test_sides_may_have_tokenizers_of_their_own(composed: Callable[..., DictConfig], parallel: Path) -> None:
    config = composed(
        "data=pairs", f"data.path={parallel}", "tokenizer=words", "tokenizer@target_tokenizer=characters"
    )
    vocabularies = build.build_vocabularies(config, build.build_corpus(config))
    assert vocabularies.source.tokens(vocabularies.source.encode("The a")) == ["the", "a"]
    assert vocabularies.target.tokens(vocabularies.target.encode("das")) == ["d", "a", "s"]


def test_a_wrong_size_is_said_in_one_line(composed: Callable[..., DictConfig]) -> None:
    with pytest.raises(UserError, match=r"query of size 9 with a memory of size 8.*attention=general"):
        build_all(composed(*TINY, *SYNTHETIC, "attention=dot", "decoder.size=9"))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seed=x", "seed=x: give a whole number from 0"),
        ("seed=-1", "seed=-1: give a whole number from 0"),
        ("decoder.layers=0", "decoder.layers=0: give a whole number from 1 on"),
        ("encoder.size=1.5", "encoder.size=1.5: give a whole number from 1 on"),
        ("loss.label_smoothing=2", "loss.label_smoothing=2: give a number from 0.0 to 1.0"),
        ("loss.coverage=-1", "loss.coverage=-1: give a number from 0.0 on"),
        ("search.beam_size=true", "search.beam_size=True: give a whole number from 1 on"),
        ("teacher_forcing.value=1.5", "teacher_forcing.value=1.5 is no chance: give a number from 0 to 1"),
        ("batching.copying=true", "set readout=pointer_generator and batching.copying=true, or neither"),
    ],
)
def test_a_number_that_makes_no_sense_is_said_in_one_line(
    composed: Callable[..., DictConfig], word: str, message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        build_all(composed(*TINY, *SYNTHETIC, word))


def test_a_pointer_needs_something_to_copy(composed: Callable[..., DictConfig]) -> None:
    with pytest.raises(UserError, match="or neither"):
        build_all(composed(*TINY, *SYNTHETIC, "readout=pointer_generator", "batching.copying=false"))


def test_alignments_of_words_ask_for_tokens_that_are_words(
    composed: Callable[..., DictConfig], parallel: Path, tmp_path: Path
) -> None:
    links = tmp_path / "links.txt"
    links.write_text("0-0 1-1\n" * 12)
    words = (*TINY, "data=pairs", f"data.path={parallel}", f"data.alignments_path={links}")
    build_all(composed(*words, "tokenizer=whitespace"))
    with pytest.raises(UserError, match=r"links words, .* use tokenizer=whitespace or words"):
        build_all(composed(*words, "tokenizer=characters"))


def test_the_identity_leaves_out_where_things_go(composed: Callable[..., DictConfig]) -> None:
    same = identify(composed())
    assert identify(composed("logger=none", "force=true")) == same
    assert identify(composed("seed=1")) != same


def test_overrides_of_a_finished_run(composed: Callable[..., DictConfig]) -> None:
    config = prepare(composed()).read_config()
    changed = apply_overrides(config, ["search.beam_size=5", "data.test_lengths=[13,24]"])
    assert (changed.search.beam_size, list(changed.data.test_lengths)) == (5, [13, 24])
    assert config.search.beam_size == 1
    with pytest.raises(
        UserError, match=r"no setting 'search.beem_size' in this run; did you mean 'search.beam_size'\?"
    ):
        apply_overrides(config, ["search.beem_size=5"])


def test_the_nearest_name() -> None:
    assert suggest("sise", ["size", "layers"]) == "; did you mean 'size'?"
    assert suggest("zzz", ["size", "layers"]) == ""


def test_all_keys(composed: Callable[..., DictConfig]) -> None:
    assert {"seed", "encoder", "encoder.size", "trainer.max_epochs"} <= set(all_keys(composed()))


def test_a_backward_half_needs_two_directions(composed: Callable[..., DictConfig]) -> None:
    with pytest.raises(UserError, match=r"encoder\.bidirectional=true"):
        build_all(composed(*TINY, *SYNTHETIC, "bridge=bahdanau", "encoder.bidirectional=false"))


@pytest.mark.parametrize("form", ["two columns", "three columns", "a header line"])
def test_english_german_reads_every_form_of_the_export(
    form: str, composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    rows = [[f"I am number {i}!", f"Ich bin Nummer {i} — schön.", "CC-BY 2.0 (France)"] for i in range(40)]
    rows.append([" ".join(["very"] * 30), " ".join(["sehr"] * 30), ""])
    columns = 3 if form == "three columns" else 2
    lines = ["1\t2"] if form == "a header line" else []
    lines += ["\t".join(row[:columns]) for row in rows]
    path = tmp_path / "deu.txt"
    path.write_text("\n".join(lines) + "\n")

    config = composed(
        "experiment=eng_deu", f"data.path={path}", "data.val_fraction=0.2", "data.test_fraction=0.2"
    )
    module, data = build_all(config)
    pairs = [pair for split in ("train", "val", "test") for pair in data.pairs(split)]
    assert sorted(pair.source for pair in pairs) == sorted(row[0] for row in rows)
    assert module.vocabularies.target.clean("Ich bin Nummer 7 — schön.") == "ich bin nummer 7 schön"
    data.setup("test")
    longest = [max(data.examples(split).source_lengths) for split in ("train", "val", "test")]
    assert max(longest) == 20
    assert max(max(data.examples(split).target_lengths) for split in ("train", "val", "test")) == 21


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        ("additive", []),
        ("additive", ["decoder=luong"]),
        ("general", ["decoder=gnmt"]),
        ("additive", ["encoder=gru", "readout=maxout", "decoder.layers=2"]),
        ("dot", ["readout.tied=true"]),
    ],
)
def test_no_attention_can_have_the_parameters_of_attention(
    attention: str, words: list[str], composed: Callable[..., DictConfig]
) -> None:
    attentive, _ = build_all(composed(*SYNTHETIC, *words, f"attention={attention}"))
    matching = ["attention=none_matched", f"attention@attention.match={attention}"]
    matched, _ = build_all(composed(*SYNTHETIC, *words, *matching))
    assert matched.network.decoder.attention.context_size == 0
    assert matched.network.parameter_count == pytest.approx(attentive.network.parameter_count, rel=0.01)
