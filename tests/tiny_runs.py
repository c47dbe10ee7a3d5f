"""Settings, modules and losses of runs that take a fraction of a second."""

import torch
from lightning import Trainer
from omegaconf import DictConfig

from attnlab.config.by_pairs import at_pairs
from attnlab.data.datamodule import Seq2SeqData
from attnlab.training import build, components
from attnlab.training.module import Seq2SeqModule
from attnlab.types import Batch

TINY = (
    "embedding.size=8",
    "encoder.size=4",
    "decoder.size=8",
    "attention_size=5",
    "batching.batch_size=4",
    "search.max_length=8",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
)
SYNTHETIC = ("data.train_size=12", "data.val_size=4", "data.test_size=4")
QUIET = {
    "accelerator": "cpu",
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "use_distributed_sampler": False,
    "log_every_n_steps": 1,
}
OWN_TRAINER = {"logger": False, **{name: QUIET[name] for name in QUIET if name != "use_distributed_sampler"}}
"""Arguments of a Trainer of the user, with Lightning's default sampler."""


def build_all(config: DictConfig):
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    data.setup("fit")
    config = at_pairs(config, len(corpus.train))
    network = build.build_network(config, vocabularies)
    return components.build_module(config, network, vocabularies, corpus), data


def training_loss(module: Seq2SeqModule, batch: Batch, data: Seq2SeqData | None = None) -> torch.Tensor:
    """The loss of a step, outside of any trainer."""
    module.log = lambda *_, **__: None
    module._trainer = Trainer(logger=False, **QUIET)
    module._trainer.datamodule = data
    module.on_fit_start()
    return module.training_step(batch, 0)
