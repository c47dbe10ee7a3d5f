"""Parts from outside are checked before a run trains, and before a sweep; those of attnlab pass too."""

import json
from pathlib import Path

import pytest
from lightning import Trainer
from omegaconf import OmegaConf

from attnlab.cli.main import run
from attnlab.config.compose import compose_run
from attnlab.config.options import CONF
from attnlab.files.run_directory import Run
from attnlab.jobs.preflight import any_token, build_on_meta, find_error
from attnlab.testing import PartError
from attnlab.training.own_parts import check_parts, describe_code, warn_of_changed_code
from commands import TINY_REVERSE, attnlab
from tiny_runs import QUIET, SYNTHETIC, TINY, build_all

PADDED = """
import torch
from attnlab.nn.attention import Attention

class Padded(Attention):
    def score(self, query, keys, state):
        return torch.bmm(query, keys.transpose(1, 2)) * keys.shape[1]
"""
OVERRIDES = ["attention=dot", "attention._target_=padded.Padded", "encoder.size=8", "decoder.size=16"]


def check(overrides: list[str], *, shipped: bool = False) -> list[str]:
    config = compose_run(overrides)
    return [*check_parts(config, build_on_meta(config), any_token(), shipped=shipped)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [
        f"{group}={path.stem}"
        for group in ("encoder", "decoder")
        for path in sorted((CONF / group).glob("*.yaml"))
    ],
)
def test_encoders_and_decoders_of_attnlab_keep_their_contract(choice: str) -> None:
    readout = ["readout=marginal"] if choice == "decoder=exact_hard" else []
    assert len(check([choice, *readout], shipped=True)) == 3


RESTRICTED = """
from attnlab.nn.{module} import {base}

class Restricted({base}):
    def __init__(self, *, input_size, **settings):
        if input_size != 11:
            raise ValueError(f"input_size is {{input_size}}, not 11")
        super().__init__(input_size=input_size, **settings)
"""


@pytest.mark.parametrize(
    ("group", "module", "base"),
    [
        ("encoder", "encoders.convolutional", "ConvolutionalEncoder"),
        ("decoder", "decoders.luong", "LuongDecoder"),
        ("readout", "readout", "Readout"),
    ],
)
def test_parts_may_restrict_the_size_of_their_input(
    group: str, module: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are checked with the sizes of the network, such as the width of an embedding made for them."""
    name = f"restricted_{group}"
    (tmp_path / f"{name}.py").write_text(RESTRICTED.format(module=module, base=base))
    monkeypatch.syspath_prepend(tmp_path)
    options = {"encoder": "encoder=convolutional", "decoder": "decoder=luong", "readout": "readout=softmax"}
    own = [options[group], f"{group}._target_={name}.Restricted", "embedding.size=11"]
    assert check(own) == [f"{group} {name}.Restricted"]


def test_parts_of_attnlab_are_not_checked_again() -> None:
    assert check(["attention=multihead"]) == []


def test_slip_is_found_by_command_run_and_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "padded.py").write_text(PADDED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    message = "padded.Padded.score (padded.py:6) gives a sentence other results alone"
    assert run(["check", *OVERRIDES]) == 1
    assert message in capsys.readouterr().err
    with pytest.raises(PartError, match="padded length"):
        check(OVERRIDES)
    assert message in find_error(compose_run(OVERRIDES))


def test_digest_of_code_covers_the_modules_that_a_part_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {
        "part_a": "import helper_a\nclass A: pass\n",
        "helper_a": "x = 1\n",
        "other_a": "import part_a\n",
    }
    for name, text in texts.items():
        Path(f"{name}.py").write_text(text)
    config = OmegaConf.create(
        {"attention": {"_target_": "part_a.A"}, "optimizer": {"_target_": "torch.optim.Adam"}}
    )
    described = describe_code(config)
    assert list(described["parts"]) == ["part_a.A"]
    assert {Path(path).name for path in described["files"]} == {"part_a.py", "helper_a.py"}
    assert warn_of_changed_code(described, config) == []
    assert warn_of_changed_code(None, config) == []  # a run of an earlier version
    Path("helper_a.py").write_text("x = 2\n")
    assert warn_of_changed_code(described, config) == ["part_a.A"]
    assert describe_code(OmegaConf.create({"optimizer": {"_target_": "torch.optim.Adam"}})) == {}


@pytest.mark.slow
def test_commands_tell_that_the_code_of_a_part_changed(tmp_path: Path) -> None:
    path = tmp_path / "edited.py"  # no other test imports a module of this name
    path.write_text(PADDED.replace("keys.shape[1]", "2"))
    part = ("attention=dot", "attention._target_=edited.Padded", "encoder.size=8", "decoder.size=16")
    train = ("train", *TINY_REVERSE, *part, "trainer.max_epochs=1")
    attnlab(*train, folder=tmp_path)
    (directory,) = (tmp_path / "outputs" / "reverse").iterdir()
    code = Run(directory).read_result()["code"]
    assert list(code["parts"]) == ["edited.Padded"]
    evaluate = ("evaluate", str(directory), "--trust", "edited")
    assert "is not the code" not in attnlab(*evaluate, folder=tmp_path).stderr
    path.write_text(PADDED.replace("keys.shape[1]", "3"))
    done = attnlab(*evaluate, folder=tmp_path)
    assert "the code of edited.Padded is not the code that this run was started with" in done.stderr
    (evaluation,) = (path for path in directory.glob("evaluations/*/result.json"))
    assert json.loads(evaluation.read_text())["changed_code"] == ["edited.Padded"]
    again = attnlab(*train, folder=tmp_path).stdout
    assert f"{path} changed since this run was started: to train it again, add force=true" in again


SUMMED = """
from attnlab.nn.readout import Readout
from attnlab.training.losses.base import LossTerm

class Shifted(Readout):
    def forward(self, features, weights=None, copy_ids=None):
        return self.output(features - features.mean(dim=0, keepdim=True))

class Sum(LossTerm):
    def __call__(self, outputs, batch, progress):
        return outputs.log_probabilities.exp().square().sum()

class Mean(LossTerm):
    def __call__(self, outputs, batch, progress):
        return outputs.log_probabilities.exp().square().sum(dim=-1).mean()
"""


def test_readouts_and_loss_terms_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "summed.py").write_text(SUMMED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for override, problem in (
        ("readout._target_=summed.Shifted", "summed.Shifted.forward .*alone than in a batch"),
        ("loss.terms.own={_target_: summed.Sum, weight: 1}", "summed.Sum.__call__ .*mean over the target"),
    ):
        with pytest.raises(PartError, match=problem):
            check([override])
    assert check(["loss.terms.own={_target_: summed.Mean, weight: 1}"]) == ["loss term summed.Mean"]


PREPARED = """
from attnlab.training.losses.base import LossTerm

class Rarity(LossTerm):
    def prepare(self, module):
        self.pairs = module.data.pairs("train")

    def __call__(self, outputs, batch, progress):
        rows = [len(self.pairs[index].target) for index in batch.indices.tolist()]
        return sum(rows) * outputs.log_probabilities.exp().square().mean()
"""


def test_loss_term_that_prepares_itself_is_checked_on_training_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prepared.py").write_text(PREPARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    module, data = build_all(
        compose_run([*TINY, *SYNTHETIC, "loss.terms.own={_target_: prepared.Rarity, weight: 1}"])
    )
    message = r"prepared.Rarity.__call__ \(.*prepared.py:8\) changes if the batch is repeated"
    with pytest.raises(PartError, match=message):
        Trainer(logger=False, max_epochs=1, **QUIET).fit(module, data)


SECOND_PASS = """
from attnlab.training.losses.base import LossTerm
from attnlab.types import PAD

class Agreement(LossTerm):  # of two passes with different dropout (Liang et al. 2021)
    def prepare(self, module):
        self.network = module.network
        assert self.network.training

    def __call__(self, outputs, batch, progress):
        real = batch.labels != PAD
        logits = self.network.logits(self.network(batch), batch.copy_ids, real)
        difference = logits.log_softmax(dim=-1).exp() - outputs.log_probabilities.exp()
        return difference.square().sum() / real.sum()
"""


@pytest.mark.filterwarnings("ignore:Found . module.s. in eval mode")
def test_loss_term_may_read_the_batch_again_with_other_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "second_pass.py").write_text(SECOND_PASS)
    monkeypatch.syspath_prepend(str(tmp_path))
    term = "loss.terms.own={_target_: second_pass.Agreement, weight: 1}"
    module, data = build_all(compose_run([*TINY, *SYNTHETIC, "embedding.dropout=0.5", term]))
    frozen = module.network.encoder.eval()
    trainer = Trainer(logger=False, max_steps=2, **QUIET)
    trainer.fit(module, data)
    assert trainer.callback_metrics["train/own_loss"] > 0
    assert module.network.training
    assert not frozen.training
