"""Reader of Weights & Biases offline files, and the contents of a dashboard."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768
"""Block size in bytes of the LevelDB log format, in which the files are written."""

HEADER = 7
"""Bytes before each fragment (checksum 4, length 2, type 1) and before the first block."""


def records(path: Path) -> Iterator[Record]:
    """Yield the records of a `.wandb` file in order."""
    data = path.read_bytes()
    position, fragments = HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:  # padding at the end of a block
            position += BLOCK - position % BLOCK
            continue
        length = int.from_bytes(data[position + 4 : position + 6], "little")
        kind = data[position + 6]
        position += HEADER
        fragments += data[position : position + length]
        position += length
        if kind in (1, 4):  # complete record, or its last fragment
            record = Record()
            record.ParseFromString(fragments)
            fragments = b""
            yield record


def read_offline(run_directory: Path, folders: str = "offline-run-*") -> dict[str, Any]:
    """Read the offline file of a run from the folder that matches the pattern.

    Returns:
        The id, entity, notes, group, job type, tags, commit, config, exit code (None while open), summary,
        files of the artifact of each type, step metric of each metric pattern, and the history with one dict
        per row.
    """
    (path,) = (run_directory / "wandb").glob(f"{folders}/run-*.wandb")
    content: dict[str, Any] = {"config": {}, "history": [], "summary": {}, "artifacts": {}}
    content |= {"step_metrics": {}, "exit_code": None}
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run = record.run
            content |= {
                "id": run.run_id,
                "group": run.run_group,
                "job_type": run.job_type,
                "tags": list(run.tags),
                "entity": run.entity,
                "notes": run.notes,
                "commit": run.git.commit,
            }
            content["config"] |= {item.key: json.loads(item.value_json) for item in run.config.update}
        elif kind == "config":
            for item in record.config.update:
                content["config"]["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
        elif kind == "history":
            row = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            content["history"].append(row)
        elif kind == "summary":
            for item in record.summary.update:
                content["summary"]["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
        elif kind == "artifact":
            artifact = record.artifact
            content["artifacts"][artifact.type] = [file.path for file in artifact.manifest.contents]
        elif kind == "metric":
            content["step_metrics"][record.metric.name or record.metric.glob_name] = record.metric.step_metric
        elif kind == "exit":
            content["exit_code"] = record.exit.exit_code
    return content


def shown(workspace: Any) -> set[str]:
    """Return the names of all metrics, pictures and tables that a dashboard shows."""
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
