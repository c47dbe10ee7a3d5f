"""The logger that writes metrics.csv."""

from pathlib import Path

from attnlab.config.compose import compose_run
from attnlab.training.loggers import MetricsFile, flatten, log_image, log_table, markdown_table


def test_truncated_file_equals_the_file_at_the_checkpoint_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    metrics = MetricsFile(path)
    assert metrics.flush() == 0
    metrics.log_metrics({"train/loss": 0.1, "epoch": 0}, step=4)
    length = metrics.flush()
    before = path.read_bytes()
    assert length == len(before)
    metrics.log_metrics({"val/loss": 1 / 3, "epoch": 0}, step=4)  # the same step, after the checkpoint
    after = path.read_bytes()

    for cut in (len(after), len(after) - 9, length):  # complete, in the middle of a row, at the checkpoint
        path.write_bytes(after[:cut])
        MetricsFile(path).truncate(length)
        assert path.read_bytes() == before
    metrics.log_metrics({"val/loss": 1 / 3, "epoch": 0}, step=4)
    assert path.read_bytes() == after


def test_logged_settings_are_those_that_identify_a_run() -> None:
    logged = flatten(compose_run(["encoder.size=7", "checkpoint.keep=3"]))
    assert logged["encoder/size"] == 7
    assert not {"checkpoint/keep", "checkpoint/every_minutes", "data/cache", "paths/output"} & {*logged}
    assert not any(name.endswith("_partial_") for name in logged)


def test_tensorboard_receives_pictures_and_tables(tmp_path: Path) -> None:
    import matplotlib.image
    import numpy as np
    from lightning.pytorch.loggers import TensorBoardLogger
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    picture = tmp_path / "picture.png"
    matplotlib.image.imsave(picture, np.zeros((3, 5, 3)))
    logger = TensorBoardLogger(tmp_path, name="", version="tensorboard")
    log_image([logger], "attention/1", picture, step=7)
    log_table([logger], "predictions/val", ["source", "hypothesis"], [["a|b", "c"]], step=7)
    logger.experiment.flush()
    events = EventAccumulator(logger.log_dir).Reload()
    (image,) = events.Images("attention/1")
    assert (image.step, image.width, image.height) == (7, 5, 3)
    assert events.Tags()["tensors"] == ["predictions/val/text_summary"]
    assert markdown_table(["source"], [["a|b"]]) == "| source |\n| --- |\n| a\\|b |"
