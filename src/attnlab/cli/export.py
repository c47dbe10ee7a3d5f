"""`attnlab export`: export a trained network: as ONNX graphs, or as a page that runs in a browser."""

import argparse
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from attnlab.cli import arguments
from attnlab.errors import UsageError, UserError
from attnlab.files.run_directory import locate_run
from attnlab.files.writing import check_writable
from attnlab.jobs.worker_process import import_from_current_folder

PACKAGES = ("onnx", "onnxruntime", "onnxscript")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run directory or a checkpoint file")
    parser.add_argument(
        "--onnx",
        metavar="DIR",
        type=Path,
        help="write the encoder and the decoding step as ONNX graphs, the tokenizers, and translate.py, "
        "which decodes with ONNX Runtime; DIR is new, empty or an earlier export",
    )
    parser.add_argument("--int8", action="store_true", help="quantise the ONNX graphs dynamically to 8 bits")
    parser.add_argument(
        "--page",
        metavar="FILE.html",
        type=Path,
        help="write a self-contained page that translates typed sentences and draws the attention",
    )
    arguments.add_trust(parser)


def main(options: argparse.Namespace) -> int:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise UserError(f"attnlab export needs {', '.join(missing)}: pip install 'attnlab[export]'")
    if options.onnx is None and options.page is None:
        raise UsageError("attnlab export: give --onnx DIR, --page FILE.html or both")
    if options.int8 and options.onnx is None:
        raise UsageError("attnlab export: --int8 needs --onnx DIR; pages have fp32 weights")
    if options.page is not None and options.page.suffix != ".html":
        raise UsageError(f"--page {options.page}: the name must end in .html")
    if options.page is not None:
        check_writable(options.page)
    from attnlab.deploy.export import browser_page as page
    from attnlab.deploy.export import folder, graphs
    from attnlab.training.models import load_network

    if options.onnx is not None:
        folder.check(options.onnx)
    if options.trust:
        import_from_current_folder()
    run, checkpoint = locate_run(options.run)
    config, vocabularies, network = load_network(checkpoint, options.trust)
    if config.data.get("preparation") is not None:
        raise UserError(
            f"{options.run} cannot be exported: data.preparation changes a sentence before the network reads "
            "it, which an export does not do. Use attnlab predict"
        )
    exported = graphs.export(network)
    if options.page is not None:
        page.write(options.page, exported, config, vocabularies, page.example_sentences(run))
        _report(options.page, [options.page])
    if options.onnx is not None:
        folder.write(options.onnx, exported, config, vocabularies, int8=options.int8)
        _report(options.onnx, options.onnx.glob("*.onnx"))
    return 0


def _report(path: Path, files: Iterable[Path]) -> None:
    print(f"{path}  {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")
