"""Rows of Parquet and Arrow files, read by `pyarrow` in constant memory as if each were a line of JSON."""

import json
from collections.abc import Iterator
from pathlib import Path

from attnlab.errors import UserError, needs

SUFFIXES = (".parquet", ".arrow")
ROWS = 1000  # Rows of a Parquet file that are read at a time


def read_rows(path: str, *, setting: str) -> Iterator[str]:
    """Yield the rows of a Parquet file, or of an Arrow file or stream, as JSON objects."""
    with needs("huggingface", f"{setting}={path} needs pyarrow"):
        import pyarrow
        from pyarrow import parquet
    try:
        with pyarrow.memory_map(str(Path(path).expanduser())) as file:
            if path.endswith(".parquet"):
                batches = parquet.ParquetFile(file).iter_batches(ROWS)
            else:
                is_file = file.read(6) == b"ARROW1"
                file.seek(0)
                reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(file)
                batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                for row in batch.to_pylist():
                    yield json.dumps(row, default=_plain)
    except (OSError, RuntimeError, pyarrow.ArrowException) as error:
        raise UserError(
            f"{setting}: {path} cannot be read ({' '.join(str(error).split())}). Check the path, or "
            "create the file again"
        ) from error


def _plain(value: object) -> object:
    """Return bytes as the text that they encode, and another value that is no text as one that is refused."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else {type(value).__name__: 0}
