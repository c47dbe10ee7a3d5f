"""Classes that a configuration read from a file may name."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from attnlab.config.checks import check_settings
from attnlab.config.options import CONF
from attnlab.config.trust import check
from attnlab.errors import UserError

GROUPS_OF_A_RUN = sorted(
    path for path in CONF.rglob("*.yaml") if path.relative_to(CONF).parts[0] not in ("explain", "hydra")
)


def targets(node: Any) -> set[str]:
    if isinstance(node, dict):
        named = {node["_target_"]} if "_target_" in node else set()
        return named.union(*(targets(child) for child in node.values()))
    return set().union(*map(targets, node)) if isinstance(node, list) else set()


def test_every_class_of_conf_is_allowed() -> None:
    named = set()
    for path in GROUPS_OF_A_RUN:
        content = yaml.safe_load(path.read_text()) or {}
        content.pop("hydra", None)  # Hydra's own settings are not part of a run's configuration
        named |= targets(content)
    named = {target for target in named if not target.startswith("$")}
    assert len(named) > 40
    for target in sorted(named):
        check({"_target_": target}, "a file")


def test_a_composed_configuration_is_allowed(composed: Callable[..., DictConfig]) -> None:
    config = composed()
    OmegaConf.resolve(config)
    check(config, "a file")


@pytest.mark.parametrize(
    "target",
    [
        "torch.nn.Linear",
        "torch.optim.AdamW",
        "torch.optim.lr_scheduler.StepLR",
        "lightning.Trainer",
        "lightning.pytorch.callbacks.EarlyStopping",
        "lightning.pytorch.loggers.CSVLogger",
    ],
)
def test_building_blocks_of_torch_and_lightning_are_allowed(target: str) -> None:
    check({"part": {"_target_": target}}, "a file")


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "sympy.sympify",
        "builtins.eval",
        "attnlab",
        "attnlab.cli.main.run",
        "attnlab.jobs.worker.os.system",
        "attnlab.data.conala.dataset.json.load",  # a function of json
        "attnlab.data.conala.dataset.Path.unlink",
        "attnlab.data.conala.dataset._read_member",
        "attnlab.nn.attention.additive.torch.load",
        "attnlab.nn.attention.Additive.register_forward_hook",
        "attnlab.files.writing.write_atomically",
        "attnlab.training.checkpoints.read_checkpoint",
        "attnlab.training.loggers.os.replace",
        "attnlab.training.module.Seq2SeqModule.load_from_checkpoint",
        "hydra.utils.get_method",
        "lightning.LightningModule.load_from_checkpoint",
        "lightning.pytorch.cli.LightningCLI",
        "lightning.fabric.utilities.cloud_io._load",
        "torch.hub.load",
        "torch.load",
        "torch.nn.modules.module.torch.load",
        "torch.nn.init.normal_",
        "torch.optim.optimizer.torch.load",
        "torch.utils.cpp_extension.load",
        "torchmetrics.Metric",
        "attnlab_evil.Attention",
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        lambda node: {"encoder": node},
        lambda node: {"encoder": {"_target_": "torch.nn.Linear", "deep": {"list": [1, [node]]}}},
        lambda node: {"encoder": {"_target_": "torch.nn.Linear", "_args_": [node], "_partial_": True}},
        lambda node: {"encoder": {**node, "_partial_": True}},
    ],
    ids=["top", "nested", "argument", "partial"],
)
def test_other_targets_are_refused_anywhere(place: Callable[[Any], Any], target: str) -> None:
    with pytest.raises(UserError, match=rf"run.ckpt names (the class )?{re.escape(target)}") as refused:
        check(OmegaConf.create(place({"_target_": target})), "run.ckpt")
    assert "--trust" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_error_names_the_class_and_the_option() -> None:
    with pytest.raises(UserError) as refused:
        check({"attention": {"_target_": "cosine.Cosine"}}, "best.ckpt")
    assert str(refused.value) == (
        "best.ckpt names the class cosine.Cosine, which is not part of attnlab: add --trust cosine if you "
        "trust it"
    )


def test_parts_of_another_version_are_named() -> None:
    for target in ("attnlab.nn.attention.removed.Part", "attnlab.nn.attention.additive.Part"):
        with pytest.raises(UserError, match=f"names {target}, which this version of attnlab does not"):
            check({"_target_": target}, "run.ckpt")


def test_plain_values_are_checked_inside_tuples() -> None:
    with pytest.raises(UserError, match=r"a file names the class os.system"):
        check({"layers": ({"_target_": "os.system"},)}, "a file")


def test_a_target_must_be_a_name() -> None:
    with pytest.raises(UserError, match="_target_ must be the dotted name of a class"):
        check({"_target_": ["os.system"]}, "a file")


def test_a_module_is_not_imported_before_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    with pytest.raises(UserError, match="is not part of attnlab"):
        check({"_target_": "evil_module.Attention"}, "a file", ["cosine"])


def test_trust_covers_a_module_or_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "trusted_cosine.py").write_text("import os\nclass Cosine: pass\nclass Other: pass\n")
    config = {"_target_": "trusted_cosine.Cosine"}
    check(config, "a file", ["trusted_cosine"])
    check(config, "a file", ["other", "trusted_cosine.Cosine"])
    for target, trust in [
        ("trusted_cosine.Other", "trusted_cosine.Cosine"),
        ("trusted_cosine.os.system", "trusted_cosine"),
        ("trusted_cosine.Cosine", "trusted"),
    ]:
        with pytest.raises(UserError, match="--trust"):
            check({"_target_": target}, "a file", [trust])


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "x${paths.output}", "${quick:1,2}"])
def test_interpolations_are_refused_unresolved(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "password")
    with pytest.raises(UserError, match=r"contains the interpolation .* at config\.data\.0\.path") as refused:
        check(OmegaConf.create({"data": [{"path": value}]}), "a file")
    assert "password" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("reranking.accepts", "{_target_: torch.utils.collect_env.run, command: exit}"),
        ("data.weights", "[{_target_: torch.utils.collect_env.run, command: exit}]"),
    ],
)
def test_a_text_that_was_checked_never_becomes_a_section(
    key: str, text: str, composed: Callable[..., DictConfig]
) -> None:
    config = composed("reranking=python", "data=pairs", "data.train=a.tsv", "data.val=b.tsv")
    OmegaConf.update(config, key, text)
    check(OmegaConf.to_container(config, resolve=True), "a file")
    with pytest.raises(UserError, match=re.escape(key)):
        check_settings(config)
    assert OmegaConf.select(config, key) == text
