"""Table of the parts of the network, for terminals."""

from __future__ import annotations

from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Column, Table

from attnlab.training.module import Seq2SeqModule


class NetworkSummary(Callback):
    """Prints each part of the network with its class and its number of parameters."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Seq2SeqModule)
        if not trainer.is_global_zero:
            return
        table = Table(Column("part", overflow="fold"), Column("class", overflow="fold"))
        table.add_column("parameters", justify="right")
        for name, part in pl_module.network.named_children():
            count = sum(parameter.numel() for parameter in part.parameters())
            table.add_row(name, type(part).__name__, f"{count:,}")
        Console(stderr=True, soft_wrap=True).print(table)
