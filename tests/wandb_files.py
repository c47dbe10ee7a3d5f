"""What Weights & Biases holds offline, read back from its files, and what a dashboard of it shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768
"""Bytes between two places where a fragment of a record may begin: the file is a LevelDB log."""

HEADER = 7
"""Bytes before each fragment (checksum 4, length 2, type 1), and before the first block."""


def records(path: Path) -> Iterator[Record]:
    """The records of a `.wandb` file, in their order."""
    content = path.read_bytes()
    position, pieces = HEADER, b""
    while position + HEADER <= len(content):
        if BLOCK - position % BLOCK < HEADER:  # too little is left of the block: padding
            position += BLOCK - position % BLOCK
            continue
        length = int.from_bytes(content[position + 4 : position + 6], "little")
        kind = content[position + 6]
        position += HEADER
        pieces += content[position : position + length]
        position += length
        if kind in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(pieces)
            pieces = b""
            yield record


def read_offline(run_directory: Path, folders: str = "offline-run-*") -> dict[str, Any]:
    """What the one file of a run says of it, in the folder of that pattern.

    Returns:
        Its id, group, job type, tags, config, exit code (None while open), the step metric of each pattern of
        metrics, and its history: a dict a row.
    """
    (path,) = (run_directory / "wandb").glob(f"{folders}/run-*.wandb")
    told: dict[str, Any] = {"config": {}, "history": [], "step_metrics": {}, "exit_code": None}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            told |= {
                "id": run.run_id,
                "group": run.run_group,
                "job_type": run.job_type,
                "tags": list(run.tags),
            }
            told["config"] |= {item.key: json.loads(item.value_json) for item in run.config.update}
        elif kind == "history":
            row = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            told["history"].append(row)
        elif kind == "metric":
            told["step_metrics"][record.metric.name or record.metric.glob_name] = record.metric.step_metric
        elif kind == "exit":
            told["exit_code"] = record.exit.exit_code
    return told


def shown(workspace: Any) -> set[str]:
    """Every metric, picture and table that a dashboard shows."""
    panels = [panel for section in workspace.sections for panel in section.panels]
    named = [
        name
        for panel in panels
        for name in (
            *getattr(panel, "y", ()),
            *getattr(panel, "metrics", ()),
            *getattr(panel, "media_keys", ()),
            *([panel.table_name] if hasattr(panel, "table_name") else []),
        )
    ]
    return {name if isinstance(name, str) else name.name for name in named}
