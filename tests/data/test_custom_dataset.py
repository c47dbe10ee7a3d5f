"""A dataset outside the package: one module and one option file, in the folder of the user."""

import json
import re
from pathlib import Path

import pytest

from commands import TINY_REVERSE, attnlab

MODULE = """
from attnlab.data import Corpus, Pair
from attnlab.metrics.registry import text_metric

DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


def load(*, repeats):
    pairs = [
        Pair(f"after {day}", following, annotations={"number": number}, postprocess="[{}]".format)
        for number, (day, following) in enumerate(zip(DAYS, DAYS[1:] + DAYS[:1]))
    ]
    return Corpus(train=pairs * repeats, val=pairs, test=pairs[:3], metrics=("bracketed",))


@text_metric(label="bracketed", format="share")
def bracketed(texts):
    return texts.share(lambda hypothesis, reference: hypothesis[0] == "[")
"""
OPTION = "_target_: weekdays.load\nrepeats: 10\n"


@pytest.mark.slow
def test_custom_dataset_with_post_processing_and_metric(tmp_path: Path) -> None:
    (tmp_path / "weekdays.py").write_text(MODULE)
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "data" / "weekdays.yaml").write_text(OPTION)
    sizes = [setting for setting in TINY_REVERSE if not setting.startswith("data.")]
    attnlab(
        *("train", "--config-dir", "conf", "data=weekdays", "data.repeats=5", "data.metrics=[wer]", *sizes),
        *("trainer.max_epochs=2", "logger=none"),
        folder=tmp_path,
    )
    (run,) = (tmp_path / "outputs" / "weekdays").iterdir()
    metrics = json.loads((run / "result.json").read_text())["metrics"]
    assert metrics["test/bracketed"] == 1.0
    assert metrics["test/wer"] == 100 * (1 - metrics["test/exact_match"])
    lines = [json.loads(line) for line in (run / "predictions" / "test.jsonl").read_text().splitlines()]
    assert [line["source"] for line in lines] == ["after monday", "after tuesday", "after wednesday"]
    assert [line["annotations"] for line in lines] == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert all(line["hypothesis"][0] == "[" and line["hypothesis"][-1] == "]" for line in lines)
    report = attnlab("report", "outputs/weekdays", "--metric", "test/bracketed", folder=tmp_path).stdout
    assert re.search(r"bracketed \[%\].*\n.*\n.* 100\.0 ", report)  # in another process
