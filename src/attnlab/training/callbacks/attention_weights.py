"""What the decoder looked at, kept as numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from lightning import Callback, LightningModule, Trainer

from attnlab.data.alignment import alignment_matrix, output_alignment
from attnlab.runs.directory import Run
from attnlab.runs.predictions import Prediction, write_predictions
from attnlab.training.module import Seq2SeqModule, Split


class AttentionWeights(Callback):
    """Writes `predictions/attention.jsonl`, the weights of the first sentences, which the report explores.

    Of the test split as the best model decodes it, or of the validation split where there is no test split.

    Args:
        run: whose predictions they are.
        count: sentences, the first of the split.
    """

    def __init__(self, *, run: Run, count: int = 200) -> None:
        self.path = run.attention
        self.count = count

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the validation split, if training is over and no test follows."""
        assert isinstance(pl_module, Seq2SeqModule)
        if trainer.state.fn != "fit" and not pl_module.data.pairs("test"):
            self._write(trainer, pl_module, "val")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the test split."""
        assert isinstance(pl_module, Seq2SeqModule)
        self._write(trainer, pl_module, "test")

    def _write(self, trainer: Trainer, module: Seq2SeqModule, split: Split) -> None:
        if trainer.is_global_zero:
            write_predictions(self.path, self._decode(module, split), weights="pack")

    @torch.no_grad()
    def _decode(self, module: Seq2SeqModule, split: Split) -> Iterator[Prediction]:
        data, vocabularies = module.data, module.vocabularies
        pairs = data.pairs(split)[: self.count]
        for start in range(0, len(pairs), data.evaluation_batch_size):
            indices = range(start, min(start + data.evaluation_batch_size, len(pairs)))
            batch = data.examples(split)[list(indices)]
            gold = alignment_matrix(
                batch, [vocabularies.gold_alignment(pairs[index]) for index in indices]
            )  # [B, T, S]
            found = module.search(batch.to(module.device), [pairs[index] for index in indices])
            for row, index in enumerate(indices):
                tokens, weights = found.tokens[row][0], found.weights[row][0]
                source = batch.source[row, : int(batch.source_lengths[row])].tolist()
                pair = pairs[index]
                reference = pair.reference
                yield Prediction(
                    index=index,
                    source=pair.source,
                    reference=vocabularies.target.clean(pair.target) if reference is None else reference,
                    hypothesis=vocabularies.output_text(tokens, pair),
                    source_tokens=vocabularies.source.tokens(source),
                    tokens=[*vocabularies.tokens(tokens, pair.source), "<eos>"],
                    weights=weights.numpy(),
                    alignment=None
                    if vocabularies.gold_alignment(pairs[index]) is None
                    else output_alignment(batch, gold, row, tokens).nonzero().tolist(),
                )
