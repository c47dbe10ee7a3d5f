"""`attnlab export`: export a trained network as ONNX graphs with a script that runs them."""

import argparse
from pathlib import Path

from attnlab.cli import arguments
from attnlab.errors import UserError, needs
from attnlab.files.run_directory import locate_run
from attnlab.jobs.worker_process import import_from_current_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=arguments.RUN)
    parser.add_argument(
        "--onnx",
        metavar="DIR",
        type=Path,
        required=True,
        help="write the encoder and the decoding step as ONNX graphs, the tokenizers, and translate.py, "
        "which decodes with ONNX Runtime; DIR is new, empty or an earlier export",
    )
    parser.add_argument("--int8", action="store_true", help="quantise the ONNX graphs dynamically to 8 bits")
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    from attnlab.data.tokenization.tokenizer import PresplitTokenizer

    with needs("export", "attnlab export needs onnx, onnxruntime and onnxscript"):
        from attnlab.deploy.export import folder, graphs
    from attnlab.training.models import load_network

    folder.check(options.onnx)
    if options.trust:
        import_from_current_folder()
    _, checkpoint = locate_run(options.run)
    config, vocabularies, network, _ = load_network(checkpoint, options.trust)
    if config.data.get("preparation") is not None:
        raise UserError(
            f"{options.run} cannot be exported: data.preparation changes a sentence before the network reads "
            "it, which an export does not do. Use attnlab predict"
        )
    if any(isinstance(tokenizer, PresplitTokenizer) for tokenizer in vocabularies):
        raise UserError(
            f"{options.run} cannot be exported: its tokenizer splits texts by a Python module. Use attnlab "
            "predict"
        )
    folder.write(options.onnx, graphs.export(network), config, vocabularies, int8=options.int8)
    size = sum(file.stat().st_size for file in options.onnx.glob("*.onnx"))
    print(f"{options.onnx}  {size / 1e6:.1f} MB")
    return 0
