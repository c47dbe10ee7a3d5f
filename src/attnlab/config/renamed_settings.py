"""Outdated settings and options, each with its current form."""

from __future__ import annotations

_PUBLISHED_CLEANING = "[apostrophes,ascii_punctuation,ascii_digits,devanagari_digits]"

RENAMED: dict[str, str] = {
    # options: group=option -> overrides
    "attention=additive_biased": "attention=additive attention_bias=true",
    "bridge=bahdanau": "bridge=linear bridge.half=backward",
    "bridge=tanh": "bridge=linear",
    "callbacks=averaging": "callbacks.early_stopping.patience=5 callbacks.averaging.decay=0.99",
    "callbacks=early_stopping": "callbacks.early_stopping.patience=5",
    "data=conala_official": "data=conala",
    "data=conala_slots": "data=conala data.preparation.slots=true",
    "data=copy": "data=synthetic data.task=copy",
    "data=reverse": "data=synthetic data.task=reverse",
    "data=sort": "data=synthetic data.task=sort",
    "encoder=gru": "encoder=recurrent encoder.cell=gru decoder.cell=gru",
    "encoder=lstm": "encoder=recurrent encoder.cell=lstm decoder.cell=lstm",
    "experiment=conala_baseline": "experiment=conala attention=none",
    "experiment=copy_published": "experiment=reverse_published data.task=copy",
    "experiment=eng_deu_baseline": "experiment=eng_deu attention=none",
    "experiment=eng_deu_best": "experiment=translation data.limit=50000",
    "experiment=eng_mar_best": f"experiment=translation tokenizer.drop={_PUBLISHED_CLEANING}",
    "experiment=reverse": "data=synthetic data.task=reverse",
    **{
        f"experiment=conala_steps/{step}": f"experiment=conala_steps step={step}"
        for step in (
            "0_baseline",
            "1_regularised",
            "2_subwords",
            "3_small_batches",
            "4_word_dropout",
            "5_copying",
            "6_slots",
            "7_recurrent",
        )
    },
    "logger=csv": "logger=none",
    "logger=many": "logger=[wandb,tensorboard]",
    "normaliser=entmax15": "normaliser.alpha=1.5",
    "normaliser=softmax": "normaliser.alpha=1",
    "normaliser=sparsemax": "normaliser.alpha=2",
    "readout=maxout": "readout=softmax readout.parts=[state,context,input] readout.maxout=500",
    "readout=state": "readout=softmax readout.parts=[state]",
    "readout=state_context": "readout=softmax",
    "reranking=coverage": "reranking.coverage_penalty=0.2",
    "teacher_forcing=constant": "teacher_forcing.decay=null",
    "teacher_forcing=inverse_sigmoid": "teacher_forcing.decay=inverse_sigmoid teacher_forcing.steps=1000",
    "teacher_forcing=linear": "teacher_forcing.decay=linear",
    "tokenizer=bpe": "tokenizer=subwords",
    "tokenizer=unigram": "tokenizer=subwords tokenizer.algorithm=unigram",
    "tokenizer=words_without_digits": f"tokenizer=words tokenizer.drop={_PUBLISHED_CLEANING}",
    "trainer=ddp": "trainer.accelerator=gpu trainer.devices=-1",
    "trainer=ddp_cpu": "trainer.accelerator=cpu trainer.devices=2",
    "tune=recipe": "tune=default",
    # single settings: key=value -> override
    "search.prefer_python=false": "reranking=none",
    "search.prefer_python=true": "reranking=python",
    # single settings: key -> key, with any value
    "attention.bells": "attention.components",
    "batching.by": "batching.batch_type",
    "batching.like_length": "batching.bucket_by_length",
    "batching.source_end": "batching.source_eos",
    "callbacks.pictures.count": "callbacks.attention_figures.count",
    "callbacks.pictures.every_n_epochs": "callbacks.attention_figures.every_n_epochs",
    "data.test_path": "data.test",
    "search.coverage_penalty": "reranking.coverage_penalty",
    "teacher_forcing.k": "teacher_forcing.steps",
    "teacher_forcing.value": "teacher_forcing.start",
}
"""Current overrides by outdated `group=option`, `key=value` or key."""

DERIVED = {"batching.copying": "the readout"}
"""Former settings, with what determines them now."""


def explain_renamed(key: str, value: str) -> str | None:
    """Return one line with the current form of `key=value`, or None if it is not an outdated setting."""
    override = f"{key}={value}"
    if key in DERIVED:
        return f"{override}: {key} is now derived from {DERIVED[key]}; remove it"
    if key in RENAMED:
        return f"{override} is now {RENAMED[key]}={value}"
    current = RENAMED.get(override) or RENAMED.get(override.lower())
    return None if current is None else f"{override} is now {current}"
