"""Tables of measurements, printed with the machine they are from and written as CSV."""

import csv
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from attnlab.training.environment import cpu_name
from attnlab.training.hardware import multiplies_bf16

Rows = Sequence[Mapping[str, object]]


def print_table(rows: Rows, title: str, path: Path | None) -> None:
    """Print a table with the machine's name and speed, and write it as CSV if a path is given."""
    table = Table(*rows[0], title=title, caption=describe_machine())
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(soft_wrap=True).print(table)
    if path:
        write_csv(rows, path)


def write_csv(rows: Rows, path: Path) -> None:
    """Write rows with a header as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def describe_machine() -> str:
    """Return the CPU, the threads, torch and the speed of a matrix product, which is measured."""
    a, b = torch.randn(2, 1024, 1024)
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        torch.mm(a, b)
        seconds.append(time.perf_counter() - start)
    speed = 2 * 1024**3 / min(seconds) / 1e9
    threads = torch.get_num_threads()
    return f"{cpu_name()} · {threads} threads · torch {torch.__version__} · torch.mm {speed:.0f} GFLOP/s"


def precisions() -> dict[str, str]:
    """Return the precisions to measure by name: fp32, and bf16 on a CPU that has units for it."""
    if multiplies_bf16("cpu"):
        return {"fp32": "32-true", "bf16": "bf16-mixed"}
    print("bf16 is left out: this CPU has no units for it")
    return {"fp32": "32-true"}
