"""Comparison with the attention of other packages, given the same parameters.

Install the packages with `pip install --no-deps -r tests/peers.txt`; missing ones are skipped.
"""

import warnings
from functools import partial
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from attnlab.nn.attention import Additive, Attention, CoverageSee, Dot, Forward, General, LocationSensitive
from attnlab.types import Memory
from networks import random_memory, randomise, walk

B, T, S, H, D, A = 2, 3, 5, 7, 11, 13
LENGTHS = torch.tensor([5, 2])


def package(name: str) -> ModuleType:
    """Import a module of another package, ignoring its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def prepare(attention: Attention) -> tuple[Tensor, Memory]:
    """Give a mechanism large parameters; return queries [B, T, H] and a memory for it."""
    randomise(attention)
    return torch.randn(B, T, attention.query_size), random_memory(LENGTHS.tolist(), attention.memory_size)


def copy_parameters(theirs: nn.Module, weights: dict[str, Tensor]) -> None:
    """Set the parameters of `theirs` by name, and all others to 0."""
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(weights.pop(name).view_as(parameter) if name in weights else 0 * parameter)
    assert not weights  # every name exists


def assert_equal_results(
    results: tuple[Tensor, Tensor], contexts: Tensor, weights: Tensor, *, atol: float = 1e-5
) -> None:
    """Compare contexts [B, T, D] and weights [B, T, S] of all target positions."""
    for ours, theirs in zip(results, (contexts, weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


@torch.no_grad()
@pytest.mark.parametrize("name", ["BahdanauAttention", "LuongAttention"])
def test_equals_joeynmt(name: str) -> None:
    sizes, module = {"query_size": H, "memory_size": D}, package("joeynmt.attention")
    if name == "BahdanauAttention":
        ours, theirs = Additive(**sizes, size=A), module.BahdanauAttention(A, D, H)
    else:
        ours, theirs = General(**sizes), module.LuongAttention(H, D)
    queries, memory = prepare(ours)
    weights = {name.replace(".", "_layer."): weight for name, weight in ours.named_parameters()}
    copy_parameters(theirs, weights)
    theirs.compute_proj_keys(memory.states)
    steps = [theirs(query, memory.mask[:, None], memory.states) for query in queries.split(1, dim=1)]
    contexts, attended = (torch.cat(parts, dim=1) for parts in zip(*steps, strict=True))
    assert_equal_results(walk(ours, queries, memory), contexts, attended)


@torch.no_grad()
@pytest.mark.parametrize("name", ["AttAdd", "AttLoc", "AttCov", "AttForward"])
def test_equals_espnet(name: str) -> None:
    """ESPnet initialises the previous weights uniformly and attnlab with 0: it gets zeros here."""
    package("espnet")
    mechanisms = package("espnet.nets.pytorch_backend.rnn.attentions")
    sizes = {"query_size": H, "memory_size": D, "size": A}
    score = partial(Additive, size=A, bias=True)
    if name == "AttAdd":
        ours, theirs = Additive(**sizes, bias=True), mechanisms.AttAdd(D, H, A)
    elif name == "AttForward":  # its features of the previous weights, as in AttLoc, are 0 here
        ours = Forward(query_size=H, memory_size=D, score=score)
        theirs = mechanisms.AttForward(D, H, A, 2, 1)
    elif name == "AttLoc":
        ours = LocationSensitive(**sizes, channels=2, kernel=3)
        theirs = mechanisms.AttLoc(D, H, A, 2, 1)
    else:
        ours, theirs = CoverageSee(**sizes), mechanisms.AttCov(D, H, A)
    queries, memory = prepare(ours)
    scorer = ours.inner if isinstance(ours, Forward) else ours
    weights = {
        "mlp_dec.weight": scorer.query.weight,
        "mlp_enc.weight": scorer.key.weight,
        "gvec.weight": scorer.energy.weight,
    }
    state: Tensor | list[Tensor] | None = None
    if isinstance(ours, LocationSensitive):
        state = torch.zeros(B, S)
        weights |= {
            "mlp_enc.bias": ours.past.bias,
            "mlp_att.weight": ours.past.weight,
            "loc_conv.weight": ours.convolution.weight,
        }
    elif isinstance(ours, CoverageSee):
        state = [torch.zeros(B, S)]
        weights |= {"wvec.weight": ours.past.weight, "wvec.bias": ours.past.bias}
    else:
        weights |= {"mlp_enc.bias": scorer.key.bias + scorer.query.bias}
    copy_parameters(theirs, weights)
    contexts, attended = [], []
    for query in queries.unbind(dim=1):
        context, state = theirs(memory.states, LENGTHS, query, state, scaling=1.0)
        contexts.append(context)
        attended.append(state[-1] if isinstance(state, list) else state)
    # In AttForward, ESPnet adds 1e-6 to every position including padding and normalises again.
    atol = 5e-5 if name == "AttForward" else 1e-5
    stacked = (torch.stack(parts, dim=1) for parts in (contexts, attended))
    assert_equal_results(walk(ours, queries, memory), *stacked, atol=atol)


@torch.no_grad()
@pytest.mark.parametrize("name", ["dot", "general", "mlp"])
def test_equals_eole(name: str) -> None:
    """Eole, once OpenNMT-py, has an output layer of context and query: here it returns the context alone."""
    package("eole")
    theirs = package("eole.modules.global_attention").GlobalAttention(D, attn_type=name)
    sizes = {"query_size": D, "memory_size": D}
    weights = {"linear_out.weight": torch.eye(D, 2 * D)}
    mechanisms = {"dot": Dot, "general": General, "mlp": partial(Additive, size=D, bias=True)}
    ours = mechanisms[name](**sizes)
    queries, memory = prepare(ours)
    if isinstance(ours, General):
        # Projects the query instead of the memory
        weights |= {"linear_in.weight": ours.key.weight.T.contiguous()}
    elif isinstance(ours, Additive):
        weights |= {
            "linear_query.weight": ours.query.weight,
            "linear_query.bias": ours.query.bias + ours.key.bias,
            "linear_context.weight": ours.key.weight,
            "v.weight": ours.energy.weight,
        }
    copy_parameters(theirs, weights)
    outputs, attended = theirs(queries, memory.states, ~memory.mask[:, None])
    contexts, our_weights = walk(ours, queries, memory)
    assert_equal_results((contexts if name == "mlp" else contexts.tanh(), our_weights), outputs, attended)
