"""Output of `attnlab predict --attention`: a page, figures, numbers, or heat maps in the terminal.

Each format imports what it draws with, so that translating a sentence starts without it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from omegaconf import DictConfig

from attnlab.errors import UsageError
from attnlab.files.predictions import Prediction, to_json_line
from attnlab.files.writing import check_writable, open_atomically

FORMATS = (".png", ".svg", ".pdf", ".jsonl", ".html")
TERMINAL = Path("-")

Write = Callable[[Prediction], None]


def check(target: str | None) -> Path | None:
    """Return the path of `--attention`."""
    path = None if target is None else Path(target)
    if path is None or path == TERMINAL:
        return path
    if path.suffix not in FORMATS:
        raise UsageError(
            f"--attention {target}: the name must end in {', '.join(FORMATS)}, or be - for the terminal"
        )
    check_writable(path)
    return path


def open_output(path: Path | None, config: DictConfig) -> AbstractContextManager[Write]:
    """Return a context manager of the function that writes the weights of a prediction.

    A file replaces an earlier one when the block ends, and only if there is a prediction to write. If the
    block raises, the earlier file stays.
    """
    if path is None:
        return nullcontext(lambda prediction: None)
    if path == TERMINAL:
        from attnlab.report.terminal import print_heatmap

        return nullcontext(print_heatmap)
    if path.suffix == ".jsonl":
        return _numbers(path)
    if path.suffix == ".html":
        return _page(path, config)
    return nullcontext(lambda prediction: _draw(path, prediction))


@contextmanager
def _numbers(path: Path) -> Iterator[Write]:
    with ExitStack() as stack:
        files: list[BinaryIO] = []

        def write(prediction: Prediction) -> None:
            if not files:
                files.append(stack.enter_context(open_atomically(path)))
            files[0].write(to_json_line(prediction, weights="round").encode())

        yield write


@contextmanager
def _page(path: Path, config: DictConfig) -> Iterator[Write]:
    """Write an explorer page of all sentences, with the hypotheses of a sentence side by side."""
    from attnlab.report.explorer import Sentence
    from attnlab.report.page import write_explorer

    predictions: list[Prediction] = []
    yield predictions.append
    if not predictions:
        return
    ranks = range(1, max(prediction.rank for prediction in predictions) + 1)
    by_place = {(prediction.index, prediction.rank): prediction for prediction in predictions}
    sentences = [
        Sentence(by_place[index, 1].source, (), [by_place.get((index, rank)) for rank in ranks])
        for index in dict.fromkeys(prediction.index for prediction in predictions)
    ]
    names = [config.variant if len(ranks) == 1 else f"{config.variant} · {rank}" for rank in ranks]
    write_explorer(sentences, names, config.name, path)


def _draw(path: Path, prediction: Prediction) -> None:
    """Draw a figure of one prediction: attention-1.png, or attention-1-2.png for the second hypothesis."""
    from attnlab.report.files import save

    number = prediction.index + 1
    suffix = f"{number}" if prediction.rank == 1 else f"{number}-{prediction.rank}"
    save(prediction.plot(), path.with_name(f"{path.stem}-{suffix}{path.suffix}"))
