"""Train with Lightning: `python trainer_script.py ARGUMENTS_OF_THE_TRAINER SETTINGS`.

Each process prints the indices of its training pairs and the number of evaluated pairs.
"""

import sys
from typing import Any

import lightning
from lightning.pytorch.loggers import WandbLogger

import attnlab


class Count(lightning.Callback):
    def on_train_start(self, *_: Any) -> None:
        self.indices: list[int] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self.indices += batch.indices.tolist()

    def on_train_end(self, *_: Any) -> None:
        print(f"indices={sorted(self.indices)}", flush=True)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        print(f"evaluated={len(module.outputs)}", flush=True)


if __name__ == "__main__":
    code, settings = sys.argv[1:3]  # Lightning appends settings of Hydra to those of its second process
    module, data = attnlab.build(settings.split())
    arguments = eval(code, {"WandbLogger": WandbLogger})
    lightning.Trainer(**arguments, callbacks=[Count()]).fit(module, data)
