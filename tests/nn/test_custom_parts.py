"""An encoder and a decoder from outside the package, from Python and from a configuration."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import custom_parts
from attnlab.nn.seq2seq import Seq2Seq
from commands import TINY_REVERSE, attnlab
from custom_parts import ConvolutionalEncoder, ElmanDecoder
from networks import (
    SOURCE_WIDTH,
    STATE,
    TARGET_WIDTH,
    assemble,
    forced_logits,
    make_attention,
    random_batch,
    randomise,
    stepwise,
)


def make_network(attention: str) -> Seq2Seq:
    encoder = ConvolutionalEncoder(input_size=SOURCE_WIDTH, size=11)
    mechanism = make_attention(attention, STATE, encoder.memory_size)
    decoder = ElmanDecoder(input_size=TARGET_WIDTH, attention=mechanism, size=STATE)
    network = assemble(encoder, decoder)
    randomise(network)
    return network.eval()


@pytest.mark.parametrize("attention", ["Additive", "Coverage", "NoAttention"])
def test_teacher_forcing_equals_steps_and_trains_every_parameter(attention: str) -> None:
    network = make_network(attention)
    batch = random_batch([3, 7, 1, 5], [4, 2, 5, 3])
    logits = forced_logits(network, batch)
    torch.testing.assert_close(logits, stepwise(network, batch)[0], rtol=0, atol=1e-5)
    logits.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())


@pytest.mark.slow
def test_parts_from_a_configuration(tmp_path: Path) -> None:
    """One module and one YAML file each: nothing in the package changes."""
    shutil.copy(custom_parts.__file__, tmp_path / "parts.py")
    for group, lines in {
        "encoder/window": ["_target_: parts.ConvolutionalEncoder", "size: 32", "kernel: 3"],
        "decoder/elman": ["_target_: parts.ElmanDecoder", "size: 32"],
    }.items():
        path = tmp_path / "custom" / f"{group}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([*lines, "_partial_: true"]) + "\n")
    sizes = [word for word in TINY_REVERSE if not word.startswith(("encoder", "decoder"))]
    overrides = ["--config-dir=custom", "encoder=window", "decoder=elman", "trainer.max_epochs=1"]
    attnlab("train", *overrides, *sizes, "logger=none", folder=tmp_path, PYTHONPATH=str(tmp_path))
    [result] = tmp_path.glob("outputs/*/*/result.json")
    assert json.loads(result.read_text())["status"] == "finished"
