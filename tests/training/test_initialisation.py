"""Start from the weights of another run: what is loaded, new, left out and frozen."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from attnlab.data.tokenization import train
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import subwords
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import InterruptedRunError, UserError
from attnlab.files.run_directory import prepare_run
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training import build, checkpoints, recipe
from attnlab.training.callbacks.checkpoints import LastCheckpoint
from attnlab.training.initialisation import NETWORK_PARTS, Source, freeze, initialise, part_of, read_source
from tiny_runs import SYNTHETIC, TINY, build_all, training_loss

Composed = Callable[..., DictConfig]
OLD = train.whitespace(["a b c", "b c"], max_size=None)
NEW = train.whitespace(["a d e d", "b f"], max_size=None)
OLD_SIZE = 7  # special tokens, <unk>, a, b, c
CONTENTS = {"config": {}, "vocabularies": [OLD.to_json()] * 2}


def vocabularies_of(tokenizer: Tokenizer) -> Vocabularies:
    return Vocabularies(tokenizer, tokenizer)


@pytest.fixture
def saved(composed: Composed, tmp_path: Path) -> Source:
    """A checkpoint of a network for the words a, b and c."""
    network = build.build_network(composed(*TINY), vocabularies_of(OLD))
    path = tmp_path / "old.ckpt"
    weights = {f"network.{name}": value for name, value in network.state_dict().items()}
    torch.save({"state_dict": weights, "attnlab": CONTENTS}, path)
    return read_source(str(path))


def start(
    composed: Composed, source: Source, *overrides: str, tokenizer: Tokenizer = NEW
) -> tuple[Seq2Seq, dict[str, Any]]:
    torch.manual_seed(1)
    config = composed(*TINY, *overrides)
    vocabularies = source.extend(vocabularies_of(tokenizer))
    network = build.build_network(config, vocabularies)
    return network, initialise(network, vocabularies, source)


def test_same_network_is_loaded_completely(composed: Composed, saved: Source) -> None:
    network, record = start(composed, saved, tokenizer=OLD)
    assert record["sha256"] == hashlib.sha256(saved.path.read_bytes()).hexdigest()
    assert record["checkpoint"] == str(saved.path)
    assert (record["loaded"], record["new"], record["left_out"]) == (network.parameter_count, 0, 0)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, saved.weights[name], rtol=0, atol=0)


def test_new_words_are_appended_to_the_vocabulary(
    composed: Composed, saved: Source, caplog: pytest.LogCaptureFixture
) -> None:
    extended = saved.extend(vocabularies_of(NEW))
    assert extended.source is extended.target
    assert extended.source.encode("a b c d e f x") == [*OLD.encode("a b c"), 7, 8, 9, 3]
    assert extended.source.decode([7, *OLD.encode("a")]) == "d a"
    with caplog.at_level(logging.INFO):
        network, record = start(composed, saved)
    for name in (
        "source_embedding.table.weight",
        "target_embedding.table.weight",
        "readout.output.weight",
        "readout.output.bias",
    ):
        table = network.state_dict()[name]
        assert len(table) == OLD_SIZE + 3
        torch.testing.assert_close(table[:OLD_SIZE], saved.weights[name], rtol=0, atol=0)
    row = network.readout.output.weight[0].numel()
    assert record["new"] == 3 * (8 + 8 + row + 1)
    assert record["left_out"] == 0
    assert "source vocabulary: 7 entries, 3 new" in caplog.text
    assert "new: source_embedding.table.weight, target_embedding.table.weight" in caplog.text


def test_known_rows_of_every_readout_are_loaded(composed: Composed, saved: Source) -> None:
    marginal = composed(*TINY, "decoder=exact_hard", "readout=marginal")
    torch.manual_seed(2)
    weights = dict(build.build_network(marginal, vocabularies_of(OLD)).state_dict())
    network, record = start(
        composed, replace(saved, weights=weights), "decoder=exact_hard", "readout=marginal"
    )
    assert record["left_out"] == 0
    tables = ("readout.state.weight", "readout.memory.weight", "readout.memory.bias")
    for name in tables:
        table = network.state_dict()[name]
        assert len(table) == OLD_SIZE + 3
        assert torch.equal(table[:OLD_SIZE], weights[name])


def test_starting_with_other_sizes_is_warned_of(
    composed: Composed, saved: Source, caplog: pytest.LogCaptureFixture
) -> None:
    _, record = start(composed, saved, "encoder.size=5", "decoder.size=9", "embedding.size=7", tokenizer=OLD)
    assert record["left_out"] > record["loaded"]
    (warning,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert warning.startswith(f"init.from={saved.path}: {record['left_out']:,} parameters have another shape")


def test_another_mechanism_keeps_the_parts_that_fit(
    composed: Composed, saved: Source, caplog: pytest.LogCaptureFixture
) -> None:
    network, record = start(composed, saved, "attention=dot", tokenizer=OLD)
    assert "init.from" not in caplog.text
    attention = [name for name in saved.weights if part_of(name) == "decoder.attention"]
    assert attention
    assert record["left_out"] == sum(saved.weights[name].numel() for name in attention)
    assert record["new"] == 0
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, saved.weights[name], rtol=0, atol=0)


def test_frozen_parts_get_no_gradient(composed: Composed) -> None:
    gradients = {}
    for fused in ("true", "false"):
        torch.manual_seed(3)
        module, data = build_all(composed(*TINY, *SYNTHETIC, f"fused={fused}"))
        freeze(module.network, ["encoder", "source_embedding", "decoder.attention"])
        counts = module.network.parameter_count, module.network.trainable_parameter_count
        frozen = (module.network.encoder, module.network.source_embedding, module.network.decoder.attention)
        assert (
            counts[0] - counts[1] == sum(value.numel() for part in frozen for value in part.parameters()) > 0
        )
        batch = data.examples("train")[[0, 1, 2]]
        training_loss(module, batch).backward()
        gradients[fused] = {name: value.grad for name, value in module.network.named_parameters()}
    for name, gradient in gradients["true"].items():
        is_frozen = part_of(name) in ("encoder", "source_embedding", "decoder.attention")
        assert (gradient is None) == is_frozen, name
        if gradient is not None:
            torch.testing.assert_close(gradient, gradients["false"][name], rtol=1e-4, atol=1e-6)


def test_freeze_rejects_unknown_parts_and_complete_networks(composed: Composed) -> None:
    network = build.build_network(composed(*TINY), vocabularies_of(OLD))
    with pytest.raises(UserError, match=r"no part 'encodr'\. Did you mean 'encoder'"):
        freeze(network, ["encodr"])
    with pytest.raises(UserError, match="leaves nothing to train"):
        freeze(network, [part for part in NETWORK_PARTS if part != "decoder.attention"])


def test_tokenizers_must_split_alike(saved: Source) -> None:
    words = train.words(["a b"], max_size=None)
    with pytest.raises(UserError, match=r"split text differently\. Set tokenizer"):
        saved.extend(vocabularies_of(words))


def test_one_vocabulary_cannot_replace_two(saved: Source) -> None:
    separate = replace(saved, vocabularies=Vocabularies(OLD, NEW))
    with pytest.raises(UserError, match=r"one for targets\. Set shared_vocabulary=false"):
        separate.extend(vocabularies_of(NEW))
    assert separate.extend(Vocabularies(NEW, OLD)).target.size > NEW.size


def test_subwords_stay_as_they_are() -> None:
    old, new = (subwords([text], max_size=9) for text in ("ab ab bc", "cd cd ab"))
    assert old.extended(new) is old


def save(path: Path, **changes: object) -> None:
    torch.save({"attnlab": CONTENTS, "state_dict": {"network.x": torch.zeros(3)}, **changes}, path)


def truncated(path: Path) -> None:
    save(path)
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "does not exist: give a run directory or a checkpoint file"),
        (truncated, "not a checkpoint. Copy it again, or train the run that wrote it again with force=true"),
        (
            lambda path: save(path, attnlab={**CONTENTS, "vocabularies": ["{"] * 2}),
            "does not fit this version",
        ),
        (lambda path: save(path, state_dict={"network.x": 5}), "contains no weights of a network"),
    ],
)
def test_unusable_source_is_a_user_error(
    write: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    """tests/cli/test_hostile_use.py has the other messages on unusable checkpoints."""
    path = tmp_path / "x.ckpt"
    write(path)
    with pytest.raises(UserError, match=rf"init\.from: .*x\.ckpt.*{message}") as caught:
        read_source(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_resumed_run_needs_no_source_and_equals_an_uninterrupted_one(
    composed: Composed, saved: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"a {word} b\tb {word} a\n" for word in "abcdefghijklmnop"))
    runs = []
    for name in ("whole", "interrupted"):
        config = composed(
            *TINY,
            "data=pairs",
            f"data.path={pairs}",
            "tokenizer=whitespace",
            f"init.from={saved.path}",
            "init.freeze=[encoder]",
            "trainer.max_epochs=3",
            "logger=none",
            "callbacks.attention_figures.count=0",
        )
        config.paths.output = str(tmp_path / name)
        runs.append((prepare_run(config), config))
    (whole, config), (interrupted, other) = runs
    recipe.train(config, whole)

    original = LastCheckpoint.on_train_epoch_start

    def stop_after_first_epoch(self: Any, trainer: Any, module: Any) -> None:
        original(self, trainer, module)
        if trainer.current_epoch == 1:
            raise InterruptedRunError

    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "on_train_epoch_start", stop_after_first_epoch)
        with pytest.raises(InterruptedRunError):
            recipe.train(other, interrupted)
    saved.path.unlink()
    recipe.train(other, interrupted)

    assert weights(interrupted.last).keys() == weights(whole.last).keys()
    for name, value in weights(whole.last).items():
        assert torch.equal(value, weights(interrupted.last)[name]), name
        if part_of(name.removeprefix("network.")) == "encoder":
            assert torch.equal(value, saved.weights[name.removeprefix("network.")])
    for run in (whole, interrupted):
        assert run.read_result()["init"]["sha256"] == saved.sha256


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoints.read_checkpoint(path)["state_dict"]
