"""The folder of an ONNX export: graphs, tokenizers, configuration and the script that runs them.

::

    DIR/
        encoder.onnx  step.onnx                             the graphs of `attnlab.deploy.export.graphs`
        source_tokenizer.json  target_tokenizer.json        files of Hugging Face tokenizers
        export.json                                         settings of the decoding loop
        config.yaml                                         the configuration of the run
        translate.py                                        decoding with ONNX Runtime
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import onnx
from omegaconf import DictConfig, OmegaConf
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

from attnlab import __version__
from attnlab.api.evaluation_data import layout_of
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.deploy.export.graphs import Graphs
from attnlab.errors import UserError
from attnlab.training.build import copies_source

FOLDER = Path(__file__).parent
SETTINGS = "export.json"


def check(folder: Path) -> None:
    """Raise `UserError` unless a folder is new, empty or an earlier export."""
    if folder.is_dir() and not (folder / SETTINGS).is_file() and any(folder.iterdir()):
        raise UserError(f"--onnx {folder}: the folder contains other files. Give a new or an empty folder")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"--onnx {folder} is a file. Give a new or an empty folder")


def write(
    folder: Path, graphs: Graphs, config: DictConfig, vocabularies: Vocabularies, *, int8: bool
) -> None:
    """Write an export, completely or not at all; an earlier one in the folder is replaced.

    With `int8` the weights are quantised to 8 bits, and the activations while decoding.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        new = Path(temporary) / "new"
        new.mkdir()
        _write_files(new, graphs, config, vocabularies, int8=int8)
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        new.rename(folder)


def _write_files(
    folder: Path, graphs: Graphs, config: DictConfig, vocabularies: Vocabularies, *, int8: bool
) -> None:
    for name, graph in graphs._asdict().items():
        path = str(folder / f"{name}.onnx")
        if int8:
            add_pre_process_metadata(graph)  # or else it logs advice; graphs are optimised and have shapes
            quantize_dynamic(graph, path, weight_type=QuantType.QInt8)
        else:
            onnx.save(graph, path)
    for side, tokenizer in vocabularies._asdict().items():
        (folder / f"{side}_tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    resolved = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(resolved), encoding="utf-8")
    shutil.copyfile(FOLDER / "translate.py", folder / "translate.py")
    settings = json.dumps(decoding_settings(config), indent=2)
    (folder / SETTINGS).write_text(settings + "\n", encoding="utf-8")


def decoding_settings(config: DictConfig) -> dict[str, Any]:
    """Return the settings that the decoding loop needs."""
    encoder, layout = config.encoder, layout_of(config)
    source_eos, limit = bool(config.batching.source_eos), config.batching.max_source_length
    return {
        "attnlab": __version__,
        "name": f"{config.name}/{config.variant}",
        "max_length": config.search.max_length,
        "source_eos": source_eos,
        "max_source_tokens": None if limit is None else limit - source_eos,
        "max_positions": encoder.max_positions if encoder.get("positions") == "learned" else None,
        "copies_source": copies_source(config),
        "columns": None if layout is None else [layout.source_column, *layout.features],
        "target_column": None if layout is None else layout.target_column,
    }
