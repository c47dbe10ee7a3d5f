"""yoyodyne worker of transduction_peers.py, run in a separate environment: trains once and prints JSON.

Has the settings of yoyodyne's own tests of soft attention: one bidirectional LSTM layer of 256 per
direction, embeddings of 64, a decoder of 256, dropout of 0.2, label smoothing of 0.1, Adam at 0.01, a
gradient norm of 3.
"""

import json
import sys
import tempfile
import time
import warnings

import torch
from lightning import Callback, Trainer, seed_everything
from yoyodyne import data, models, optimizers
from yoyodyne.models import modules


class Accuracies(Callback):
    """Keeps the validation accuracy after each epoch."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_validation_end(self, trainer: Trainer, pl_module: torch.nn.Module) -> None:
        self.values.append(float(trainer.callback_metrics["val_accuracy"]))


def main(settings: str) -> None:
    """Run the command."""
    warnings.simplefilter("ignore")
    job = json.loads(settings)
    torch.set_num_threads(job["threads"])
    seed_everything(job["seed"], workers=True, verbose=False)
    source, target, features = job["columns"]
    with tempfile.TemporaryDirectory() as folder:
        loaded = data.DataModule(
            model_dir=folder,
            train=job["train"],
            val=job["val"],
            source_col=source,
            target_col=target,
            features_col=features,
            target_sep=" " if job["phones"] else "",
            batch_size=100,
        )
        encoder = modules.LSTMEncoder(embedding_size=64, hidden_size=256, layers=1, dropout=0.2)
        model = models.SoftAttentionLSTMModel(
            source_encoder=encoder,
            features_encoder=features > 0,  # True: that of the source
            embedding_size=64,
            decoder_hidden_size=256,
            decoder_dropout=0.2,
            label_smoothing=0.1,
            optimizer=lambda parameters: optimizers.Adam(parameters, lr=0.01),
            target_vocab_size=loaded.target_vocab_size,
            vocab_size=loaded.vocab_size,
            max_source_length=loaded.max_source_length,
            max_features_length=loaded.max_features_length,
            max_target_length=loaded.max_target_length,
        )
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
        )
        began = time.perf_counter()
        trainer.fit(model, datamodule=loaded)
        seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "steps": trainer.global_step, "accuracies": accuracies.values}))


if __name__ == "__main__":
    main(*sys.argv[1:])
