"""The sections of a configuration, and what receives their settings. Imports no torch.

The settings of a section are the arguments of the class or function that its `_target_` names. This is the
only list of the sections.
"""

from typing import NamedTuple

from attnlab import settings
from attnlab.config.options import PARTS


class Section(NamedTuple):
    """A section of the configuration."""

    target: str | None = None  # class or function that receives the settings if the section has no `_target_`
    beside: tuple[str, ...] = ()  # classes and functions that receive those that the target does not take
    declared: type | None = None  # TypedDict of settings without a target, or of narrower types of arguments
    supplied: tuple[str, ...] = ()  # arguments that attnlab passes, which are no settings
    optional: bool = False  # whether the configuration may lack the section, or have null in its place


TOKENIZER = Section(supplied=("texts",))
EMBEDDING = Section(
    "attnlab.nn.embedding.TokenEmbedding",
    beside=("attnlab.training.initialisation.load_word_vectors",),
    supplied=("vocabulary_size", "tokenizer", "network", "vocabularies"),
)
ARGUMENTS_OF_MODULE = "attnlab.training.module_arguments"

SECTIONS = {
    "": Section(declared=settings.RunSettings),
    "paths": Section(declared=settings.PathSettings),
    "data": Section(beside=("attnlab.training.build.add_metrics",), supplied=("corpus",)),
    "tokenizer": TOKENIZER,
    "target_tokenizer": TOKENIZER._replace(optional=True),
    "embedding": EMBEDDING,
    "target_embedding": EMBEDDING._replace(beside=(), optional=True),
    "encoder": Section(supplied=("input_size", "tokenizer")),
    "features": Section(supplied=("is_feature", "input_size", "memory_size")),
    "bridge": Section(supplied=("memory_size", "encoder_layers", "size", "layers", "states_per_layer")),
    "attention": Section(
        beside=("attnlab.training.build.match_decoder_size",),
        supplied=("query_size", "memory_size", "normaliser", "config", "vocabularies"),
    ),
    "attention.score": Section(supplied=("query_size", "memory_size", "normaliser")),
    "normaliser": Section("attnlab.nn.attention.normalisers.Entmax"),
    "decoder": Section(supplied=("input_size", "attention")),
    "readout": Section(supplied=("state_size", "context_size", "input_size", "vocabulary_size", "embedding")),
    "optimizer": Section(
        declared=settings.OptimizerSettings,
        supplied=(
            *("params", "maximize", "capturable", "differentiable"),
            *("foreach", "decoupled_weight_decay"),  # optimizer.fused and optimizer=adamw
        ),
    ),
    "scheduler": Section(f"{ARGUMENTS_OF_MODULE}.schedule_arguments", supplied=("lr",)),
    "scheduler.schedule": Section(supplied=("optimizer", "total_steps", "steps_per_epoch", "T_max")),
    "teacher_forcing": Section("attnlab.training.teacher_forcing.TeacherForcing"),
    "batching": Section(
        "attnlab.data.datamodule.Seq2SeqData", supplied=("corpus", "vocabularies", "with_copy_ids", "seed")
    ),
    "loss": Section(),
    "loss.terms": Section(),
    "bleu": Section(f"{ARGUMENTS_OF_MODULE}.choose_bleu_tokenizer", supplied=("corpus",)),
    "search": Section(
        "attnlab.decoding.translator.Translator",
        beside=("attnlab.training.build.build_translator",),
        supplied=("vocabularies", "reranking", "grammar", "config"),
    ),
    "reranking": Section("attnlab.decoding.reranking.rerankers"),
    "grammar": Section(optional=True),
    "init": Section(declared=settings.InitSettings, optional=True),
    "checkpoint": Section(
        beside=(
            "attnlab.training.callbacks.checkpoints.LastCheckpoint",
            "attnlab.training.callbacks.checkpoints.BestCheckpoint",
        ),
        supplied=("run", "metrics", "path"),
    ),
    "trainer": Section(
        "lightning.Trainer",
        declared=settings.TrainerSettings,
        supplied=(
            *("logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing", "barebones"),
            *("enable_progress_bar", "enable_model_summary", "use_distributed_sampler", "overfit_batches"),
            *("num_sanity_val_steps", "limit_predict_batches", "reload_dataloaders_every_n_epochs"),
            *("enable_autolog_hparams", "model_registry", "inference_mode", "benchmark", "sync_batchnorm"),
        ),
    ),
    "callbacks": Section(optional=True),
    "callbacks.early_stopping": Section(
        supplied=(
            *("log_rank_zero_only", "check_on_train_epoch_end", "strict", "verbose"),
            *("check_finite", "stopping_threshold", "divergence_threshold"),
        ),
        optional=True,
    ),
    "logger": Section(optional=True),
    "explain": Section(optional=True),
}
"""The sections by dotted name."""


def section_at(path: str) -> Section:
    """Return a section by its dotted name; also that of a callback, a logger or a term of the loss."""
    part = path.rpartition(".")[0] in PARTS.values()
    return SECTIONS.get(path, Section(supplied=("run", "config") if part else ()))
