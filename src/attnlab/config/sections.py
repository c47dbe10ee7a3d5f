"""The sections of a configuration, and what receives their settings. Imports no torch.

The settings of a section are the arguments of the class or function that its `_target_` names. This is the
only list of the sections.
"""

from typing import Any, NamedTuple, get_type_hints

from attnlab import settings
from attnlab.config.options import PARTS

UNTYPED = ("lightning", "optuna", "torch")
"""Packages of whose arguments only the names are read, since their annotations allow too much."""


class Section(NamedTuple):
    """A section of the configuration."""

    target: str | None = None  # class or function that receives the settings if the section has no `_target_`
    declared: type | None = None  # TypedDict of settings that the target does not take
    narrower: type | None = None  # TypedDict of arguments of packages in `UNTYPED`
    supplied: tuple[str, ...] = ()  # arguments that attnlab passes, which are no settings
    optional: bool = False  # whether the configuration may lack the section, or have null in its place


TOKENIZER = Section(supplied=("texts",))
EMBEDDING = Section(
    "attnlab.nn.embedding.TokenEmbedding",
    settings.EmbeddingSettings,
    supplied=("vocabulary_size", "tokenizer"),
)

SECTIONS = {
    "": Section(declared=settings.RunSettings),
    "paths": Section(declared=settings.PathSettings),
    "data": Section(declared=settings.DataSettings),
    "tokenizer": TOKENIZER,
    "target_tokenizer": TOKENIZER._replace(optional=True),
    "embedding": EMBEDDING,
    "target_embedding": EMBEDDING._replace(declared=None, optional=True),
    "encoder": Section(declared=settings.MatchSettings, supplied=("input_size", "tokenizer")),
    "features": Section(supplied=("is_feature", "input_size", "memory_size", "make_encoder")),
    "bridge": Section(supplied=("memory_size", "encoder_layers", "size", "layers", "states_per_layer")),
    "attention": Section(
        declared=settings.MatchSettings, supplied=("query_size", "memory_size", "normaliser")
    ),
    "attention.score": Section(supplied=("query_size", "memory_size", "normaliser")),
    "normaliser": Section("attnlab.nn.attention.normalisers.Entmax"),
    "decoder": Section(supplied=("input_size", "attention")),
    "readout": Section(
        declared=settings.ReadoutSettings,
        supplied=("state_size", "context_size", "input_size", "vocabulary_size"),
    ),
    "optimizer": Section(narrower=settings.OptimizerSettings, supplied=("params",)),
    "scheduler": Section(declared=settings.SchedulerSettings),
    "scheduler.schedule": Section(
        narrower=settings.ScheduleSettings,
        supplied=("optimizer", "total_steps", "steps_per_epoch", "T_max"),
    ),
    "teacher_forcing": Section("attnlab.training.teacher_forcing.TeacherForcing"),
    "batching": Section(
        "attnlab.data.datamodule.Seq2SeqData", supplied=("corpus", "vocabularies", "with_copy_ids", "seed")
    ),
    "loss": Section(),
    "loss.terms": Section(),
    "bleu": Section(declared=settings.BleuSettings),
    "search": Section(
        "attnlab.decoding.translator.Translator",
        settings.SearchSettings,
        supplied=("vocabularies", "reranking", "grammar"),
    ),
    "reranking": Section(declared=settings.RerankingSettings),
    "grammar": Section(optional=True),
    "init": Section(declared=settings.InitSettings, optional=True),
    "checkpoint": Section(declared=settings.CheckpointSettings),
    "trainer": Section(
        "lightning.Trainer",
        narrower=settings.TrainerSettings,
        supplied=(
            *("logger", "callbacks", "plugins", "default_root_dir", "enable_checkpointing", "barebones"),
            *("enable_progress_bar", "enable_model_summary", "use_distributed_sampler", "overfit_batches"),
            "num_sanity_val_steps",
        ),
    ),
    "callbacks": Section(optional=True),
    "callbacks.early_stopping": Section(narrower=settings.EarlyStoppingSettings, optional=True),
    "logger": Section(optional=True),
    "explain": Section(optional=True),
}
"""The sections by dotted name."""


def types_of(declared: type | None) -> dict[str, Any]:
    """Return the types of the settings of a TypedDict."""
    return {} if declared is None else get_type_hints(declared, include_extras=True)


def section_at(path: str) -> Section:
    """Return a section by its dotted name; also that of a callback, a logger or a term of the loss."""
    part = path.rpartition(".")[0] in PARTS.values()
    return SECTIONS.get(path, Section(supplied=("run", "config") if part else ()))
