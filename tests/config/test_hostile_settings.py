"""Wrong settings are refused in one line, with exit code 2, before anything is created."""

import os
import pwd
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from attnlab.config.checks import check_settings
from attnlab.config.compose import check_composed, compose_run, explain
from attnlab.config.hydra_versions import initialize_conf
from attnlab.errors import UsageError
from attnlab.jobs.ledger import check_job
from commands import TINY_REVERSE, attnlab

LONG = "x" * 300
WHOLE = "must be a whole number"
NUMBER = "must be a number"
FLAG = "must be true or false"

GROUPS = {
    WHOLE: """
        seed=-1 embedding.size=0 encoder.size=-8 encoder.layers=0 decoder.size=1e3 decoder.layers=none
        attention.size=0 batching.shards=0 batching.batch_size=0 batching.pool=0
        search.beam_size=0 search.max_length=0 search.top_k=0
        callbacks.averaging.update_starting_at_epoch=-1 callbacks.attention_figures.count=-1
        callbacks.attention_figures.every_n_epochs=0 data.symbols=0 data.train_size=0 data.val_size=0
        data.test_size=-1 trainer.max_steps=0 trainer.accumulate_grad_batches=0
        trainer.check_val_every_n_epoch=0
    """,
    NUMBER: """
        embedding.dropout=nan encoder.recurrent_dropout=inf decoder.dropout=x loss.terms.alignment.weight=-1
        scheduler.schedule.max_lr=0 search.length_penalty=-1 reranking.coverage_penalty=-0.2
    """,
    FLAG: """
        force=yes_please quick=2 fused=null attention_bias=1 embedding.shared=si encoder.layer_norm=null
        readout.tied=both batching.source_eos=0
    """,
    f"{NUMBER} > 0": "normaliser.temperature=0 optimizer.lr=inf optimizer.lr=0 logger.wandb.timeout=0",
    r"in \[0, 1\]": "loss.terms.distillation.weight=2 scheduler.schedule.pct_start=2",
    "≥ 1 or null": "readout.maxout=0 batching.max_source_length=-5",
    "a share in": "trainer.val_check_interval=1.5",
}
"""Wrong values of settings of the default options by the expected message."""

VALUES = (
    # override, expected message
    *((override, message) for message, overrides in GROUPS.items() for override in overrides.split()),
    ("seed=abc", f"seed=abc: {WHOLE} in "),
    ("seed=4294967296", r"in \[0, 4294967295\]"),
    ("overfit=0", f"{WHOLE} ≥ 1 or null"),
    *(
        (f"init.freeze={value}", "init.freeze=.*: must be a list of parts of the network")
        for value in ("encoder", "[1]")
    ),
    *(
        (f"init.from={value}", "init.from=.*: must be a run directory or a checkpoint file")
        for value in ("5", "' '")
    ),
    ("name=../../x", "without / and"),
    ("name='..'", "without / and"),
    (r"name='a\\b'", "without / and"),
    (f"name={LONG}", "at most 150 bytes"),
    ("name='   '", "must be the name of one folder"),
    ("name='a.'", "a space or a dot"),
    ("name=-x", "not starting with -"),
    ("name='a\u202eb'", "must be the name of one folder"),
    ("name='\u00e9\u00e9" + "\u00e9" * 80 + "'", "at most 150 bytes"),
    ("variant=../evil", "variant='../evil'"),
    ("embedding=5", "choose an option"),
    ("embedding.dropout=1.5", r"embedding.dropout=1.5: must be a number in \[0, 1\)"),
    ("encoder.cell=rnn", "must be lstm or gru"),
    ("bridge.activation=relu", "must be tanh or identity"),
    ("normaliser.alpha=1.2", r"normaliser.alpha=1.2: must be 1 \(softmax\), 1.5 .* or 2 \(sparsemax\)"),
    ("normaliser.alpha=true", "must be 1 "),
    ("readout.parts=[]", "a list of state, previous_state, context and input"),
    ("readout.parts=[memory]", "a list of state, previous_state, context and input"),
    ("paths.output=''", "the path of a folder"),
    ("paths.cache=null", "the path of a folder"),
    ("paths.output=s3://bucket/runs", "object stores such as s3:// are not supported"),
    ("init=5", "init is a section"),
    ("callbacks.early_stopping.monitor=loss", r"Did you mean 'val/loss'"),
    ("callbacks.early_stopping.mode=max", "set callbacks.early_stopping.mode=min"),
    ("loss.terms.distillation.teachers=run", "a list of run directories or checkpoint files"),
    ("search.grammar=python", "Did you mean 'grammar'"),
    ("optimizer.lr=nan", f"optimizer.lr=NaN: {NUMBER} > 0"),
    ("optimizer.fused=fast", "must be true, false or null"),
    ("scheduler.interval=batch", "must be step or epoch"),
    ("teacher_forcing.decay=sigmoid", "must be linear, inverse_sigmoid or null"),
    ("batching=null", "batching is a section"),
    ("batching.workers=-1", f"batching.workers=-1: {WHOLE} ≥ 0"),
    ("checkpoint.monitor=val/nonsense", "no such metric.*Metrics: val/loss"),
    ("checkpoint.monitor=val/blue", r"Did you mean 'val/bleu'\?"),
    ("checkpoint.monitor=null", "no such metric"),
    ("checkpoint.monitor=val/bleu", "set checkpoint.mode=max"),
    ("checkpoint.mode=max", "set checkpoint.mode=min"),
    ("checkpoint.mode=best", "set checkpoint.mode=min"),
    ("checkpoint.every_minutes=-1", "≥ 0 or null"),
    ("callbacks=averaging", r"callbacks=averaging: choose an option"),
    ("logger.wandb.mode=on", "must be auto, online or offline"),
    ("data.task=shuffle", "must be copy, reverse, sort or duplicate"),
    (
        "data.longer_lengths=13",
        "two whole numbers, the shortest and the longest length, such as .3,12. or null",
    ),
    ("data.train_lengths=[12,3]", "two whole numbers, the shortest"),
    ("trainer=ddp", "trainer is a section"),
    ("trainer.accelerator=gpus", "must be auto, cpu, gpu"),
    ("trainer.devices=0", "a number of devices"),
    ("trainer.precision=64-true", "must be auto, 32-true, bf16-mixed"),
    ("trainer.max_epochs=0", f"{WHOLE} ≥ 1 or -1"),
    ("trainer.max_epochs=-1", "set trainer.max_steps"),
    ("trainer.gradient_clip_val=-1", f"trainer.gradient_clip_val=-1: {NUMBER} ≥ 0 or null"),
    ("trainer.overfit_batches=1", r"Unknown setting .*Did you mean 'overfit'"),
    ("trainer.barebones=true", "Unknown setting"),
    ("trainer.log_every_n_steps=often", f"{WHOLE} or null"),  # types of the library's own annotations
    ("optimizer.amsgrad=2", FLAG),
    ("attention_override=argmax", "attention_override is a setting of attnlab evaluate"),
)
"""Overrides with a wrong value and a part of the message, which those of a group share."""

MIXED = (
    "attention=local_p optimizer=adamw scheduler=plateau decoder=luong",
    "attention=hard optimizer=adadelta scheduler=halving decoder=bahdanau",
    "attention=location data=conala",
    "attention=location_sensitive data=pairs tokenizer=subwords",
    "attention=mixture data=pairs tokenizer=words tokenizer@target_tokenizer=words",
)
"""Options of several groups, which are composed once for the settings of all of them."""

OPTION_VALUES = (
    # options, override, expected message
    (MIXED[0], "attention.window=0", WHOLE),
    (MIXED[1], "attention.temperature=0", f"{NUMBER} > 0"),
    (MIXED[3], "attention.kernel=4", "must be an odd number"),
    ("attention=monotonic", "attention.noise=-1", NUMBER),
    (MIXED[1], "scheduler.schedule.every=0", NUMBER),
    (MIXED[0], "decoder.input_feeding=null", FLAG),
    (MIXED[3], "data.val_fraction=1", r"in \[0, 1\)"),
    (MIXED[2], "data.near_duplicates=0", r"in \(0, 1\] or null"),
    (MIXED[2], "data.train_size=3", r"Unknown setting 'data\.train_size' for this choice of data"),
    (MIXED[2], "encoder.sise=3", r"Did you mean 'encoder\.size'\?"),
    (MIXED[2], "data.preparation.slots=2", FLAG),
    (MIXED[3], "tokenizer.max_size=0", WHOLE),
    (MIXED[4], "target_tokenizer.max_size=-1", WHOLE),
    (
        "experiment=eng_mar_baseline encoder=transformer",
        "seed=0",
        r"'encoder\.bidirectional' for this choice of encoder; encoder=\w+ has it, ~encoder\.bidirectional",
    ),
    (
        "experiment=conala_steps readout=pointer_generator",
        "seed=0",
        r"readout=pointer_generator has no effect: .* sets readout\._target_",
    ),
    (
        "decoder=transformer decoder.positions=learned",
        "search.max_length=256",
        "must be less than decoder.max_positions=256",
    ),
    ("experiment=translation decoder=bahdanau bridge=copy", "name=x/y", "without / and"),
)
"""Wrong values of settings of other options, and options that lack a key of an experiment."""

SEARCH = "train -m hydra/sweeper=optuna"

COMMANDS = (
    # arguments, expected message
    ("train encoder=null", "choose an option of encoder: .*recurrent"),
    ("train attention=", "choose an option of attention: additive"),
    ("train attention=addditive", r"Unknown attention 'addditive'\. Did you mean 'additive'\?"),
    ("train attention=../data/pairs", r"without / and|Parent traversal"),  # Hydra 1.4 refuses it itself
    ("train logger=[wandb,foo]", "Unknown logger 'foo'. Options: "),
    ("train seeed=1", r"Unknown setting 'seeed'\. Did you mean 'seed'\?"),
    ("train attention_override=uniform", "attnlab evaluate RUN attention_override=uniform"),
    ("train +explain._target_=builtins.print", "explain is a setting of attnlab evaluate"),
    ("train ~logger", "~logger: a group cannot be deleted; choose another option, logger=none"),
    ("train hydra.run.dir=X", "paths.output=FOLDER sets where they are"),
    ("train -m hydra.sweep.subdir=X seed=1,2", "paths.output=FOLDER sets where they are"),
    ("train --config-path X", "--config-dir FOLDER adds the options of a folder"),
    ("train trainer.ckpt_path=x", "the same command resumes an interrupted run"),
    ("train data=pairs data.dev=x --cfg job", "Did you mean 'data.val'"),
    ("train +widht=1", r"\+widht=1: no part of attnlab has a setting 'widht'"),
    (
        "train data._target_=attnlab.data.datasets.pairs.load_pairs ++data.path=d.csv name=own",
        r"tokenizer\.count refers to data\.symbols, .* or choose another option of tokenizer",
    ),
    ("train variant=${lang}", "a setting refers to lang, which does not exist: set one of them"),
    ("train name=日本", "quote a value with special characters: name='\"日本\"'"),
    ("train data=pairs data.path={lang}_train.tsv", r", or refer to a setting by \$\{lang\}"),
    ("train seed=[1", r"seed=\[1: cannot be parsed"),
    ("train seed", "seed: not a setting; write KEY=VALUE"),
    ("train experiment=conala_steps step=5", "step=5: choose from 0_baseline"),
    ("train --foo", "unrecognized arguments: --foo .attnlab train --help shows"),
    ("train --cfg foo", "argument --cfg/-c: invalid choice: 'foo'"),
    ("train seed=3 -m seed=1,2", "give all values of seed in one sweep, seed=3,1,2"),
    ("train --resolve", "add --cfg job"),
    ("train -m seed=range(0,0)", r"seed=range\(0,0\): the sweep is empty"),
    ("train -m --cfg job", "-m trains a sweep and --cfg shows one run: remove one of them"),
    ("train -m data=conala,synthetic data.path=x", r"Unknown setting 'data\.path' .*; data=conala has it"),
    ("train -m experiment=eng_deu,eng_mar data.path=x batching.workers=-1", r"batching\.workers=-1: must be"),
    (
        "train -m batching.shards=2 trainer.devices=1,2 trainer.accelerator=cpu",
        r"trainer\.devices: a sweep over a setting that does not .* give one value",
    ),
    (f"{SEARCH} optimizer.lr=-1,1", "optimizer.lr=-1: must be a number > 0"),
    (f"{SEARCH} seed=1,2 hydra.sweeper.n_jobs=x", "n_jobs=x: must be a whole number"),
    (f"{SEARCH} seed=1", "Nothing to search"),
    (f"{SEARCH} seed=1,2 hydra.sweeper.compare=[attention]", "attention has no values: give attention=A,B"),
    (f"{SEARCH} seed=1,2 hydra.sweeper.trails=3", r"Unknown setting 'hydra\.sweeper\.trails'"),
    (f"{SEARCH} encoder.size=int(interval(8,4))", r"encoder\.size=int\(interval\(8,4\)\)"),
    (f"{SEARCH} attention=glob(*)", r"attention=glob\(\*\): search an interval"),
    (f"{SEARCH} seed=1,2 +hydra.sweeper.sampler.foo=1", "hydra.sweeper.sampler: .*foo"),
    (f"{SEARCH} seed=1,2 hydra.sweeper.sampler._target_=optuna.Nothing", "sampler: .*Nothing"),
    ("train -m optimizer.lr=interval(0,1)", "hydra/sweeper=optuna searches intervals"),
)
"""Complete commands."""


@cache
def base(options: str) -> tuple[DictConfig, DictConfig]:
    """Compose options once for all values; returns Hydra's configuration and that of the job."""
    GlobalHydra.instance().clear()
    with initialize_conf():
        composed = compose("train", overrides=options.split(), return_hydra_config=True)
    hydra = OmegaConf.masked_copy(composed, "hydra")
    HydraConfig.instance().set_config(composed)
    with read_write(composed), open_dict(composed):
        del composed["hydra"]
    OmegaConf.resolve(composed)
    OmegaConf.set_struct(composed, False)
    return hydra, composed


def refusal(options: str, override: str) -> str:
    """Return the message with which a job with this setting is refused."""
    hydra, config = base(options)
    HydraConfig.instance().set_config(hydra)
    config = config.copy()
    (parsed,) = OverridesParser.create().parse_overrides([override])
    OmegaConf.update(config, str(parsed.key_or_group), parsed.value())

    def submit() -> None:
        check_composed(config)
        check_job(config)
        check_settings(config)

    with pytest.raises(UsageError) as refused:
        submit()
    return str(refused.value)


def check(message: str, expected: str) -> None:
    assert re.search(expected, message), message
    assert "\n" not in message
    assert "Traceback" not in message


@pytest.mark.parametrize(("override", "expected"), VALUES, ids=lambda text: text[:40])
def test_wrong_value_is_refused(
    override: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check(refusal("logger=wandb", override), expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "override", "expected"), OPTION_VALUES, ids=lambda text: text.rpartition(" ")[2][:40]
)
def test_wrong_value_of_an_option_is_refused(
    options: str, override: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check(refusal(options, override), expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "expected"), COMMANDS, ids=lambda text: text[:40])
def test_command_ends_with_one_line_and_leaves_nothing(
    arguments: str, expected: str, refused: Callable[..., str]
) -> None:
    check(refused(*arguments.split()), expected)


CONSTRUCTED = (
    # arguments, expected message
    ("attention=dot decoder.size=9", "query of size 9 with a memory of size 32"),
    ("trainer.gradient_clip_algorithm=l1", "lightning.Trainer: "),
)
"""Settings that are refused by the parts that are built from them."""


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "expected"), CONSTRUCTED)
def test_run_that_cannot_be_built_leaves_nothing(arguments: str, expected: str, tmp_path: Path) -> None:
    done = attnlab("train", *TINY_REVERSE, *arguments.split(), folder=tmp_path, code=2)
    check(done.stderr.splitlines()[-1], expected)
    assert list(tmp_path.iterdir()) == []


ARGUMENTS = """
    encoder bridge attention normaliser decoder readout optimizer scheduler.schedule teacher_forcing tokenizer
    data batching search trainer callbacks.early_stopping callbacks.averaging callbacks.attention_figures
    callbacks logger logger.mlflow embedding loss checkpoint paths init reranking loss.terms.coverage
"""
"""Sections of arguments of a class or a function."""


@pytest.mark.parametrize("section", ARGUMENTS.split())
def test_unknown_setting_is_named(section: str) -> None:
    check(refusal("logger=mlflow", f"{section}.nonsense=1"), rf"^Unknown setting '{section}\.nonsense'\.")


def test_settings_are_checked_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    folder = Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert compose_run([]).paths.cache == str(folder / ".cache" / "attnlab")
    with pytest.raises(HydraException) as unknown:
        compose_run(["seeed=1"])
    check(explain(unknown.value), "Did you mean 'seed'")
    with pytest.raises(UsageError, match=r"Did you mean 'encoder\.size'"):
        check_settings(compose_run(["encoder.sise=1"]))


def test_defaults_pass_all_checks() -> None:
    hydra, config = base("")
    HydraConfig.instance().set_config(hydra)
    check_settings(config)
