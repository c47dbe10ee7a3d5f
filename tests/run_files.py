"""Run directories without a training."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from attnlab.files.run_directory import Run
from attnlab.files.run_identity import identify
from attnlab.report.record import RunRecord
from attnlab.report.study import Study

Sentence = tuple[str, str, str]
"""Source, reference, hypothesis."""

CURVE = """\
epoch,step,metric,value
0,9,train/loss,2.5
0,9,throughput/tokens_per_second,100.0
0,9,throughput/steps_per_second,4.0
0,19,throughput/tokens_per_second,300.0
0,19,throughput/steps_per_second,5.0
0,29,throughput/tokens_per_second,200.0
0,29,throughput/steps_per_second,2.0
"""


def write_run(
    output: Path,
    variant: str = "additive",
    seed: int = 0,
    *,
    scores: Mapping[str, float] | None = None,
    status: str | None = "finished",
    sentences: Sequence[Sentence] | None = None,
    split: str = "test",
    name: str = "reverse",
    **settings: Any,
) -> Run:
    """A run directory in `output/name`; `status=None` leaves it without a result."""
    config = {
        "name": name,
        "variant": variant,
        "seed": seed,
        "force": False,
        "paths": {"output": str(output), "cache": "cache"},
        "data": {"_target_": "attnlab.data.datasets.synthetic.reverse", "cache": "cache", "seed": 0},
        "logger": {},
        **settings,
    }
    run = Run(output / name / f"{variant}-seed{seed}-{identify(OmegaConf.create(config))}")
    run.directory.mkdir(parents=True)
    run.config.write_text(OmegaConf.to_yaml(OmegaConf.create(config)))
    run.metrics.write_text(CURVE)
    if status is not None:
        result: dict[str, Any] = {"status": status, "python": "3.11.7", "packages": {"torch": "2.13.0"}}
        if status == "finished":
            result |= {
                "metrics": {"test/bleu": 50.0} if scores is None else dict(scores),
                "parameters": 1234,
                "steps": 30,
                "seconds": 90.0,
                "peak_memory": {"host": 2**30},
                "git_commit": "abc",
                "cpu": "Sparrow 2",
            }
        run.result.write_text(json.dumps(result))
    if sentences is not None:
        run.predictions.mkdir()
        lines = [
            json.dumps(
                {"index": index, "source": source, "references": [reference], "hypothesis": hypothesis}
            )
            for index, (source, reference, hypothesis) in enumerate(sentences)
        ]
        (run.predictions / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return run


def with_data(run: Run, **digests: str) -> Run:
    """Record the digests of the splits in the result of a run."""
    splits = {name: {"pairs": 8, "sha256": digest} for name, digest in digests.items()}
    return with_result(run, data={"splits": splits})


def with_code(run: Run, **digests: str) -> Run:
    """Record the digests of the code of parts from outside in the result of a run."""
    return with_result(run, code={"parts": {name.replace("_", "."): each for name, each in digests.items()}})


def with_result(run: Run, **values: Any) -> Run:
    run.result.write_text(json.dumps({**json.loads(run.result.read_text()), **values}))
    return run


def study(scores: Mapping[str, Sequence[float]], metric: str = "test/bleu") -> Study:
    """A study of finished runs: each variant's scores, of seeds 0, 1, …"""
    runs = [
        RunRecord(
            directory=Path(f"{variant}-{seed}"),
            study="reverse",
            variant=variant,
            seed=seed,
            status="finished",
            scores={metric: value},
        )
        for variant, values in scores.items()
        for seed, value in enumerate(values)
    ]
    return Study("reverse", runs, selected_metrics=(metric,))
