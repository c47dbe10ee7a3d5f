"""Checks before a sweep that its runs can be built: `python -m attnlab.jobs.preflight FOLDER`.

Reads a list of configurations from FOLDER/configs.json and writes the error of each, or null, to
FOLDER/errors.json. No data is read and nothing is trained: the network is built on torch's meta device, for a
vocabulary of a few tokens.
"""

import json
import sys
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from attnlab.config.by_pairs import at_pairs, each_size
from attnlab.config.checks import check_settings
from attnlab.config.construct import construct
from attnlab.data.tokenization.tokenizer import Tokenizer
from attnlab.data.tokenization.train import symbols
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.errors import UserError
from attnlab.jobs.worker_process import end_with_parent, import_from_current_folder
from attnlab.nn.seq2seq import Seq2Seq
from attnlab.training.build import build_network
from attnlab.training.own_parts import check_parts
from attnlab.types import UNK


class _AnyToken(Tokenizer):
    """Tokenizer in place of that of the data, which are not read: every token is in its vocabulary."""

    def id_of(self, piece: str) -> int:
        return super().id_of(piece) or UNK


def main(folder: Path) -> None:
    """Write the errors of the configurations in a folder."""
    import_from_current_folder()
    configs = json.loads((folder / "configs.json").read_text())
    errors = [find_error(OmegaConf.create(config)) for config in configs]
    (folder / "errors.json").write_text(json.dumps(errors))


def find_error(config: DictConfig) -> str | None:
    """Return why a configuration cannot be built (an unknown argument, sizes that do not fit), or None."""
    try:
        check_settings(config)
        for sized in each_size(config):
            network = build_on_meta(sized)
            with torch.device("meta"):
                construct(config.optimizer, params=network.parameters())
            for _ in check_parts(sized, network, any_token()):
                pass
    except UserError as error:
        return str(error)
    except Exception:
        return None  # perhaps not an error of the run: a custom class may not support the meta device
    return None


def build_on_meta(config: DictConfig) -> Seq2Seq:
    """Build the network of a configuration on the meta device, for one pair of a few tokens."""
    with torch.device("meta"):
        return build_network(at_pairs(config, 1), Vocabularies(any_token(), any_token()))


def any_token() -> Tokenizer:
    """Return a tokenizer with a feature, for options of `features` that need one."""
    return _AnyToken.from_json(symbols(["3 4 ⟨N⟩"], count=2).to_json())


if __name__ == "__main__":
    with end_with_parent():
        main(Path(sys.argv[1]))
