"""Greedy and beam search whose steps are replayed from a CUDA graph.

A graph repeats the same kernels on the same buffers. So the batch is padded to few different sizes, finished
sentences stay in it, the number of the step is a tensor, and the host checks only every `CHECK` steps whether
all sentences are finished. Results equal those of the other searches. No GPU has run it yet.

B, S, V, K as in `attnlab.types` · T: steps, max_length + 1
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnlab.decoding.constraints import Constraints
from attnlab.decoding.extension import Finished, extend_groups, log_probabilities, trace_back
from attnlab.fast import Kernels
from attnlab.fast.graphs import Capture, pad, round_up
from attnlab.nn.seq2seq import Encoded, TranslationModel, map_tensors, select
from attnlab.types import SOS, Batch, Hypotheses

CHECK = 4
"""Steps between two checks by the host, which waits for the GPU to finish them."""


class BeamSettings(NamedTuple):
    """Arguments of `attnlab.decoding.beam.beam` that a captured step depends on."""

    size: int
    max_length: int
    length_penalty: float
    groups: int = 1
    diversity_penalty: float = 0.0


@torch.inference_mode(False)  # the buffers are also used outside of inference mode
@torch.no_grad()
def replay(
    model: TranslationModel,
    batch: Batch,
    settings: BeamSettings,
    constraints: Constraints,
    encoded: tuple[Any, Any],
) -> Hypotheses | None:
    """Search with replayed steps, or return None if they cannot be replayed.

    They are replayed if the model captures steps on the device of the batch, and no token is forbidden.

    Args:
        model: in evaluation mode.
        batch: sources to decode; targets are ignored.
        settings: of the beam; its size is 1 for greedy search.
        constraints: restrictions on the outputs.
        encoded: result of `model.encode(batch)`.
    """
    graphs, kind = model.search_graphs, batch.source.device.type
    if graphs is None or graphs.device != kind or constraints.restricts:
        return None
    sources, state = _pad(*encoded)
    arithmetic = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    shapes = [(part.shape, part.dtype) for part in _tensors((sources, state))]

    def capture(kernels: Kernels) -> _CapturedSearch:
        return _CapturedSearch(graphs.capture, model, settings, sources._replace(kernels=kernels), state)

    key = (settings, *arithmetic, sources.copy_ids is None, *shapes)
    search = graphs.find_search(key, model.parameters(), capture)
    return None if search is None else search.run(model, sources, state, batch.source_lengths)


class _CapturedSearch:
    """Buffers of a search over batches of fixed sizes, and a captured step that updates them.

    Args:
        capture: records a function.
        model: whose steps are captured.
        settings: of the beam.
        sources: encoded sources of the first batch.
        state: its decoder state before the first token, tensors [B, 1, …].
    """

    def __init__(
        self, capture: Capture, model: TranslationModel, settings: BeamSettings, sources: Encoded, state: Any
    ) -> None:
        B, S = sources.memory.mask.shape
        K, T, device = settings.size, settings.max_length + 1, sources.keys.device
        self.settings = settings
        self.sentences = torch.arange(B, device=device)
        self.first = torch.zeros(B, K, dtype=torch.int64, device=device)  # indices of the first beam
        self.sources: Encoded = select(sources, self.sentences)  # copies
        self.last = torch.full((B, K), SOS, device=device)
        self.sums = torch.zeros(B, K, device=device)
        self.step_number = torch.zeros(1, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(T, B, K, dtype=torch.int64, device=device)
        self.parents = torch.zeros_like(self.tokens)  # beam that the token extends
        self.weights = torch.zeros(T, B, K, S, device=device)  # of the step, by the extended beam
        size = K // settings.groups
        self.finished = [Finished.none(B, size, device) for _ in range(settings.groups)]
        # in the data type of a state after a step, which autocast may change
        _, _, state = model.step(self.last, self._copy_to_beams(state), self.sources)
        self.state = map_tensors(torch.clone, state)  # [B, K, …]
        self.replay, _ = capture(lambda: self._step(model))

    def run(
        self, model: TranslationModel, sources: Encoded, state: Any, source_lengths: Tensor
    ) -> Hypotheses:
        """Search in other sources of these sizes, with the state before the first token, tensors [B, 1, …].

        Returns:
            Hypotheses of the sentences with a length; the others are padding.
        """
        self._begin(sources, state, len(source_lengths))
        for step in range(1, self.settings.max_length + 1):
            self.replay()
            if step % CHECK == 0 and self._all_finished():
                break
        else:
            self._step(model, must_end=True)
        return trace_back(self.finished, self.tokens, self.parents, self.weights, source_lengths)

    def _begin(self, sources: Encoded, state: Any, sentences: int) -> None:
        """Fill the buffers for the first step."""
        buffers, values = _tensors((self.sources, self.state)), (sources, self._copy_to_beams(state))
        torch._foreach_copy_(buffers, _tensors(values))
        self.last.fill_(SOS)
        self.step_number.zero_()
        self.sums.fill_(float("-inf"))
        self.sums[:, :: self.finished[0].size] = 0  # the first beam of each group
        for group in self.finished:
            group.scores.fill_(float("-inf"))
            group.counts.zero_()
            group.counts[sentences:] = group.size

    def _step(self, model: TranslationModel, *, must_end: bool = False) -> tuple[()]:
        """Extend all beams by one token, or by EOS if they `must_end`; read and write buffers only."""
        logits, weights, state = model.step(self.last, self.state, self.sources)
        token, parent, sums = extend_groups(
            log_probabilities(logits, self.sources.copy_ids, must_end=must_end),
            self.sums,
            self.finished,
            self.sentences,
            self.step_number,
            length_penalty=self.settings.length_penalty,
            penalty=self.settings.diversity_penalty,
        )
        for record, part in ((self.tokens, token), (self.parents, parent), (self.weights, weights)):
            record.index_copy_(0, self.step_number, part[None].to(record.dtype))
        self.last.copy_(token)
        self.sums.copy_(sums)
        state = select(state, self.sentences[:, None], parent)
        torch._foreach_copy_(_tensors(self.state), _tensors(state))
        # a capture may run the function a few times more than there are steps
        self.step_number.add_(1).clamp_(max=self.settings.max_length)
        return ()

    def _all_finished(self) -> bool:
        counts = torch.stack([group.counts for group in self.finished])  # [groups, B]
        return bool((counts == self.finished[0].size).all())

    def _copy_to_beams(self, state: Any) -> Any:
        """Copy a state [B, 1, …] to all beams, [B, K, …]."""
        return select(state, self.sentences[:, None], self.first)


def _pad(sources: Encoded, state: Any) -> tuple[Encoded, Any]:
    """Pad sources [B, S, …], without final encoder states, and a decoder state [B, …] to few sizes."""
    B, S = map(round_up, sources.memory.mask.shape)
    sources = sources._replace(memory=sources.memory._replace(hidden=None, cell=None))
    return map_tensors(lambda part: pad(part, B, S), sources), map_tensors(lambda part: pad(part, B), state)


def _tensors(tree: Any) -> list[Tensor]:
    """Return the tensors of a nested tuple, of any shapes, in order."""
    tensors: list[Tensor] = []
    map_tensors(tensors.append, tree)
    return tensors
