"""attnlab worker of transduction_peers.py: trains once with yoyodyne's settings and prints JSON."""

import json
import sys
import time
import warnings

import torch
from lightning import Callback, LightningModule, Trainer, seed_everything

from attnlab.config.compose import compose_run
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.training.length_limits import choose_max_length

MODEL = [
    *("data=pairs", "data.test_fraction=0", "tokenizer=characters", "decoder=bahdanau", "attention=additive"),
    *("readout.parts=[state]", "embedding.size=64", "encoder.size=256", "decoder.size=256"),
    *(
        "attention_size=256",
        "embedding.dropout=0.2",
        "readout.dropout=0.2",
        "loss.terms.label_smoothing.weight=0.1",
    ),
    *("optimizer=adam", "optimizer.lr=0.01", "scheduler=constant", "trainer.gradient_clip_val=3"),
    *("batching.batch_size=100", "batching.evaluation_batch_size=100", "batching.bucket_by_length=false"),
    *("search.beam_size=1", "trainer.accelerator=cpu", "checkpoint.monitor=val/exact_match"),
    "checkpoint.mode=max",
]


class Accuracies(Callback):
    """Keeps the validation accuracy after each epoch."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.values.append(float(trainer.callback_metrics["val/exact_match"]))


def main(settings: str) -> None:
    """Run the command."""
    warnings.simplefilter("ignore")
    quieten_lightning()
    job = json.loads(settings)
    torch.set_num_threads(job["threads"])
    seed_everything(job["seed"], workers=True, verbose=False)
    source, target, features = (column - 1 for column in job["columns"])  # from 0, and -1 for none
    overrides = [f"data.source_column={source}", f"data.target_column={target}", *job["overrides"]]
    overrides += [f"data.features_column={features}", "features=concatenated"] * (features >= 0)
    overrides += ["tokenizer@target_tokenizer=whitespace"] * job["phones"]
    files = [f"data.train={job['train']}", f"data.val={job['val']}"]
    config = compose_run([*MODEL, *files, *overrides, f"seed={job['seed']}"])
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    data = components.build_data(config, corpus, vocabularies)
    network = build.build_network(config, vocabularies)
    config = choose_max_length(config, data)
    module = components.build_module(config, network, vocabularies, corpus)
    accuracies = Accuracies()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=job["epochs"],
        gradient_clip_val=3,
        callbacks=[accuracies],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    began = time.perf_counter()
    trainer.fit(module, datamodule=data)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "steps": trainer.global_step, "accuracies": accuracies.values}))


if __name__ == "__main__":
    main(*sys.argv[1:])
