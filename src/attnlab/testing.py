"""Checks of mechanisms, encoders, decoders and readouts on a small batch of unequal lengths.

attnlab checks every part from outside before it trains with it. A repository with parts of its own can do
the same in its tests::

    from attnlab.testing import check_attention

    def test_cosine() -> None:
        check_attention(partial(Cosine, temperature=0.1))
"""

import logging
import re
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.attention import Attention
from attnlab.nn.decoders import Decoder, DecoderOutput
from attnlab.nn.encoders import Encoder
from attnlab.types import EOS, SOS, Batch, Memory

log = logging.getLogger(__name__)

LENGTHS = (5, 2, 4)  # Lengths S of the sentences of the batch: each but the first has padding
QUERIES = 2  # Q
QUERY_SIZE, MEMORY_SIZE, INPUT_SIZE = 8, 12, 6
"""H, D and E. They are unequal, so that swapped sizes fail, and even, as heads need them."""
TARGET_LENGTHS, VOCABULARY = (4, 3, 2), 11  # T of the sentences and V
TOLERANCE = 1e-4


class PartError(UserError):
    """A part does not keep the contract of its base class.

    The message names the class, the method, its file and line, and what is expected.
    """


class Part:
    """A part under test: explains what is wrong with the results of its methods.

    Args:
        make: returns the module.
        base: class from which the module must be derived.
        arguments: of `make`.
    """

    def __init__(self, make: Callable[..., Any], base: type[Any], **arguments: Any) -> None:
        target = make
        while hasattr(target, "func"):  # a partial
            target = target.func
        self.cls: Any = target if isinstance(target, type) else None
        with self.named("__init__", ""):
            self.module = make(**arguments)
        self.cls = type(self.module)
        if not isinstance(self.module, base):
            self.fail("", f"is no {base.__name__}: derive it from {base.__module__}")
        if isinstance(self.module, nn.Module) and "_parameters" not in vars(self.module):
            self.fail("__init__", "does not call super().__init__")

    def fail(self, method: str, problem: str) -> None:
        """Raise `PartError` with the place of a method."""
        raise PartError(f"{self.place(method)} {problem}")

    def place(self, method: str) -> str:
        """Return the name of the class and of a method, with the file and the line of its definition."""
        if self.cls is None:
            return "the part"
        name = ".".join(filter(None, [self.cls.__module__, self.cls.__qualname__, method]))
        code = getattr(vars(self.cls).get(method), "__code__", None)
        line = "" if code is None else f":{code.co_firstlineno}"
        return f"{name} ({Path(self._file).name}{line})" if self._file else name

    @property
    def _file(self) -> str:
        """File of the class, that of its methods; empty if it has none."""
        codes = (getattr(value, "__code__", None) for value in vars(self.cls).values()) if self.cls else ()
        return next((code.co_filename for code in codes if code is not None), "")

    @contextmanager
    def named(self, method: str, expected: str) -> Iterator[None]:
        """Raise an error inside the block as `PartError`."""
        try:
            yield
        except PartError:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if frame.filename == self._file]
            where = f", line {own[-1].lineno}: {own[-1].line}" if own else ""
            reason = str(error).strip().split("\n")[0]
            missing = "before Module.__init__|no attribute '(query_size|memory_size|normaliser)'"
            is_bare = isinstance(error, AttributeError) and re.search(missing, reason)
            hint = ". Call super().__init__ first" if is_bare else ""
            expectation = f". It must return {expected}" if expected else ""
            raise PartError(
                f"{self.place(method)} raises {type(error).__name__}: {reason}{hint}{where}{expectation}"
            ) from error

    def shaped(self, method: str, value: Any, shape: Sequence[int], letters: str) -> Tensor:
        """Return a result, of any shape, after checking that it is finite and has the expected shape."""
        expected = f"{letters} = {[*shape]}"
        if not isinstance(value, Tensor):
            kind = "None" if value is None else type(value).__name__
            self.fail(method, f"returns {kind}: return a tensor {expected}")
        if [*value.shape] != [*shape]:
            self.fail(method, f"returns a tensor of shape {[*value.shape]}, expected {expected}")
        if not value.isfinite().all():
            self.fail(method, f"returns NaN or infinity at real positions, in a tensor {expected}")
        return value  # type: ignore[no-any-return]

    def equal(self, method: str, one: Tensor, other: Tensor, problem: str) -> None:
        """Check that two results of any shape are equal."""
        if not torch.allclose(one.float(), other.float(), rtol=TOLERANCE, atol=TOLERANCE):
            difference = (one.float() - other.float()).abs().max().item()
            self.fail(method, f"{problem} (largest difference {difference:.2g})")

    def equal_alone(
        self, method: str, results: Callable[[slice, int], Iterable[Tensor | None]], problem: str
    ) -> None:
        """Check that sentences have equal results alone, without padding, and in the batch.

        Args:
            results: returns tensors [B, …] of these rows of the batch, whose longest source has this length.
        """
        together = [*results(slice(None), max(LENGTHS))]
        for row, length in enumerate(LENGTHS):
            for alone, batch in zip(results(slice(row, row + 1), length), together, strict=True):
                if alone is not None and batch is not None:
                    real = tuple(slice(size) for size in alone.shape[1:])
                    self.equal(method, alone[0], batch[row][real], f"gives a sentence other {problem}")

    def check_gradients(
        self, value: Tensor, leaves: Mapping[str, Tensor], *, needed: bool = True
    ) -> set[str]:
        """Check the gradients of a result [] for tensors of any shape, of which one needs a gradient.

        Returns:
            The names of those that a gradient reaches.
        """
        gradients = {}
        leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}  # others are frozen
        if value.requires_grad and leaves:
            computed = torch.autograd.grad(value, [*leaves.values()], allow_unused=True)
            gradients = {name: each for name, each in zip(leaves, computed, strict=True) if each is not None}
        for name, gradient in gradients.items():
            if not gradient.isfinite().all():
                self.fail("forward", f"has a gradient of NaN or infinity for {name}")
        if needed and not any(gradient.any() for gradient in gradients.values()):
            self.fail("forward", f"does not depend on {', '.join(leaves)}: no gradient reaches it")
        return {*gradients}


@contextmanager
def isolated() -> Iterator[None]:
    """Leave the random state of the process as it is, and draw the same numbers each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def check_attention(
    make: Callable[..., Attention], query_size: int = QUERY_SIZE, memory_size: int = MEMORY_SIZE
) -> None:
    """Check that a mechanism keeps the contract of `Attention`.

    Shapes; weights of 0 at padding; equal results for a sentence alone and in a batch, for one query and
    several, and for repeated calls; finite gradients, which reach a parameter; dependence on the query or on
    the memory. Warns of parameters without a gradient.

    Args:
        make: the class, or a partial of it with its settings; called with `query_size` and `memory_size`.
        query_size: H.
        memory_size: D; give equal sizes for a mechanism that needs them.
    """
    with isolated():
        part = Part(make, Attention, query_size=query_size, memory_size=memory_size)
        module: Attention = part.module.eval()
        if all(getattr(part.cls, name) is getattr(Attention, name) for name in ("score", "weigh", "forward")):
            near = get_close_matches("score", set(dir(part.cls)) - set(dir(Attention)), 1, 0.6)
            hint = f" It has {near[0]!r}: rename it" if near else " Implement it"
            part.fail("", f"has no method score(query, keys, state).{hint}")
        query = torch.randn(len(LENGTHS), QUERIES, module.query_size)  # [B, Q, H]
        memory = _memory(module.memory_size)
        scored = type(module).score is not Attention.score
        if scored and type(module).forward is Attention.forward:
            _check_scores(part, query, memory)
        contexts, weights = _walk(part, query, memory)
        if weights.masked_fill(memory.mask[:, None, None], 0).any():
            part.fail("forward", "gives weight to padding: apply memory.mask, which is True at real tokens")
        problem = "gives other results in a second call: return state, store none"
        part.equal("forward", _walk(part, query, memory)[0], contexts, problem)
        method = "score" if scored else "forward"
        padded = memory._replace(states=memory.states.masked_fill(~memory.mask[..., None], 7.0))
        problem = "depends on the values at padding"
        part.equal(method, _walk(part, query, padded)[0], contexts, problem)
        part.equal_alone(
            method,
            lambda rows, length: _walk(part, query[rows], _cut(memory, rows, length)),
            "results alone than in a batch with longer ones: keys.size(1) is the padded length, "
            "memory.mask.sum(-1) the true one",
        )
        for index in range(QUERIES):
            one = _walk(part, query[:, index : index + 1], memory)[0]
            problem = "gives a query other results alone than among others"
            part.equal("forward", one[:, :, 0], contexts[:, :, index], problem)
        _check_influence(part, query, memory)


def _memory(size: int) -> Memory:
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]  # [B, S]
    states = torch.randn(*mask.shape, size)  # [B, S, D]
    return Memory(states, mask, hidden=states[:, :1], cell=states[:, :1])


def _cut(memory: Memory, rows: slice, length: int) -> Memory:
    """Return the memory of some sentences, cut to a length S."""
    hidden = None if memory.hidden is None else memory.hidden[rows]
    cell = None if memory.cell is None else memory.cell[rows]
    return Memory(memory.states[rows, :length], memory.mask[rows, :length], hidden, cell)


def _check_scores(part: Part, query: Tensor, memory: Memory) -> None:
    shape = (*query.shape[:2], memory.states.size(1))
    with part.named("project", "the keys [B, S, …]"):
        keys: Any = part.module.project(memory)
    if keys is None:
        part.fail(
            "project", f"returns None: return the keys [B, S, …], with B = {shape[0]} and S = {shape[2]}"
        )
    with part.named("begin", "the state before the first step"):
        state = part.module.begin(memory)
    with part.named("score", f"scores [B, Q, S] = {[*shape]} of a query {[*query.shape]}"):
        scores = part.module.score(query, keys, state)
    scores = part.shaped("score", scores, shape, "[B, Q, S]")
    sums = scores.sum(dim=-1)
    if (scores >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE):
        part.fail(
            "score", "returns weights that sum to 1: return scores, to which the base class applies softmax"
        )


def _walk(part: Part, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Attend two times in a row; return the contexts [B, 2, Q, D] and the weights [B, 2, Q, S]."""
    results = []
    with part.named("forward", "context [B, Q, D], weights [B, Q, S] and state"):
        keys, state = part.module.project(memory), part.module.begin(memory)
        for _ in range(2):
            context, weights, state = part.module(query, memory, keys, state)
            results.append((context, weights))
    shape = query.shape[:2]
    for context, weights in results:
        part.shaped("forward", context, (*shape, part.module.context_size), "context [B, Q, D]")
        part.shaped("forward", weights, (*shape, memory.states.size(1)), "weights [B, Q, S]")
    contexts, all_weights = zip(*results, strict=True)
    return torch.stack(contexts, dim=1), torch.stack(all_weights, dim=1)


def _check_influence(part: Part, query: Tensor, memory: Memory) -> None:
    """Check the gradients, and that the result depends on the query or the memory."""
    module = part.module.train()
    query, states = query.clone().requires_grad_(), memory.states.clone().requires_grad_()
    memory = memory._replace(states=states)
    contexts, weights = _walk(part, query, memory)
    total = contexts.square().sum() + (weights * torch.arange(weights.size(-1))).sum()
    parameters = dict(module.named_parameters())
    leaves = {"query": query, "memory": states, **parameters}
    reached = part.check_gradients(total, leaves, needed=False) & parameters.keys()
    _check_trained(part, [name for name, each in parameters.items() if each.requires_grad], reached)
    module.eval()
    has_scores = type(module).score is not Attention.score and type(module).forward is Attention.forward
    if not has_scores or not parameters or not total.requires_grad:
        return
    with torch.no_grad():
        for parameter in parameters.values():  # initial zeros hide what a mechanism depends on
            if parameter.is_floating_point():
                parameter.copy_(torch.randn_like(parameter) * 0.5)
        first = _walk(part, query, memory)[1]
        by_query = _walk(part, torch.randn_like(query), memory)[1]
        by_memory = _walk(part, query, memory._replace(states=torch.randn_like(states)))[1]
    if torch.equal(first, by_query) and torch.equal(first, by_memory):
        part.fail("score", "gives the same weights for every query and every memory: it attends to nothing")


def _check_trained(part: Part, parameters: Collection[str], reached: Collection[str]) -> None:
    """Check that a gradient reaches one of the parameters; warn of submodules that none reaches."""
    if parameters and not reached:
        part.fail("forward", f"trains none of its parameters, {', '.join(parameters)}: no gradient")
    submodules = {name.partition(".")[0] for name in reached}  # of several experts, one may be chosen
    if unused := [name for name in parameters if name.partition(".")[0] not in submodules]:
        log.warning("%s does not train %s: no gradient", part.place("forward"), ", ".join(unused))


def check_encoder(make: Callable[..., Encoder], *, input_size: int = INPUT_SIZE) -> None:
    """Check that an encoder keeps the contract of `Encoder`.

    Shapes; no influence of padding; equal states for a sentence alone and in a batch; finite gradients.

    Args:
        make: the class, or a partial of it with its settings; called with `input_size`.
        input_size: E, which an encoder may restrict.
    """
    with isolated():
        part = Part(make, Encoder, input_size=input_size)
        part.module.eval()
        embedded = torch.randn(len(LENGTHS), max(LENGTHS), input_size).requires_grad_()  # [B, S, E]
        lengths = torch.tensor(LENGTHS)
        mask = torch.arange(max(LENGTHS)) < lengths[:, None]  # [B, S]
        states = _encode(part, embedded, lengths, mask).states[mask]  # [N, D]
        other = _encode(part, embedded.masked_fill(~mask[..., None], 7.0), lengths, mask)
        part.equal("forward", other.states[mask], states, "depends on the values at padding")

        def results(rows: slice, length: int) -> tuple[Tensor, Tensor | None]:
            memory = _encode(part, embedded[rows, :length], lengths[rows], mask[rows, :length])
            return memory.states, memory.hidden

        part.equal_alone("forward", results, "states alone than in a batch with longer ones")
        part.module.train()
        states = _encode(part, embedded, lengths, mask).states[mask]
        part.check_gradients(states.square().sum(), {"the embedded source": embedded})


def _encode(part: Part, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
    module = part.module
    with part.named("forward", "Memory(states=[B, S, D], mask=mask)"):
        memory = module(embedded, lengths, mask)
    if not isinstance(memory, Memory):
        part.fail("forward", f"returns {type(memory).__name__}: return Memory(states=[B, S, D], mask=mask)")
    part.shaped("forward", memory.states, (*mask.shape, module.memory_size), "states [B, S, D]")
    if memory.hidden is None and module.layers:
        part.fail("forward", f"returns no final states: layers={module.layers} promises hidden [B, L, D]")
    return memory  # type: ignore[no-any-return]


def check_decoder(
    make: Callable[..., Decoder], attention: Attention, *, input_size: int = INPUT_SIZE
) -> None:
    """Check that a decoder keeps the contract of `Decoder`.

    The teacher-forced pass equals the stepwise pass, a sentence has equal states alone and in a batch, and
    gradients are finite.

    Args:
        make: the class, or a partial of it with its settings; called with `input_size` and `attention`.
        attention: mechanism for queries of the decoder's size.
        input_size: E, which a decoder may restrict.
    """
    with isolated():
        part = Part(make, Decoder, input_size=input_size, attention=attention)
        module: Decoder = part.module.eval()
        embedded = torch.randn(len(LENGTHS), 3, input_size).requires_grad_()  # [B, T, E]
        memory = _memory(attention.memory_size)
        shape = module.state_shape
        layers = torch.randn(shape.layers, shape.states_per_layer, len(LENGTHS), 1, shape.size)

        def decode(rows: slice, length: int) -> tuple[Tensor]:
            own = _cut(memory, rows, length)
            with part.named("forward", "DecoderOutput with states [B, T, H]"):
                state = module.begin(_states(layers[:, :, rows]), own)
                output = module(embedded[rows], state, own, module.attention.project(own))
            shape = (*embedded[rows].shape[:2], module.output_size)
            return (part.shaped("forward", output.states, shape, "states [B, T, H]"),)

        (states,) = decode(slice(None), max(LENGTHS))
        with part.named("step", "an output [B, Q, …] and the next state"):
            keys, outputs = module.attention.project(memory), []
            state = module.begin(_states(layers), memory)
            for inputs in torch.split(module.project(embedded), 1, dim=1):
                output, state = module.step(inputs, state, memory, keys)
                outputs.append(output.states)
        problem = "differs from one call of step after the other"
        part.equal("forward", states, torch.cat(outputs, dim=1), problem)
        part.equal_alone("forward", decode, "states alone than in a batch")
        module.train()
        (states,) = decode(slice(None), max(LENGTHS))
        part.check_gradients(states.square().sum(), {"the embedded target": embedded})


def _states(layers: Tensor) -> Any:
    """Return the states of each layer, [B, 1, H] each, of a tensor [L, N, B, 1, H]."""
    return tuple(tuple(layer.unbind()) for layer in layers.unbind())


def check_readout(
    make: Callable[..., nn.Module],
    *,
    state_size: int = QUERY_SIZE,
    context_size: int = MEMORY_SIZE,
    input_size: int = INPUT_SIZE,
) -> None:
    """Check that a readout keeps the contract of `Readout`.

    Shapes; equal logits for a sentence alone and in a batch; finite gradients.

    Args:
        make: the class, or a partial of it with its settings; called with `state_size`, `context_size`,
            `input_size` and `vocabulary_size`.
    """
    sizes = {"state_size": state_size, "context_size": context_size, "input_size": input_size}
    with isolated():
        part = Part(make, nn.Module, **sizes, vocabulary_size=VOCABULARY)
        module = part.module.eval()
        weights = small_weights(batch := small_batch())
        states, contexts, embedded = (torch.randn(*weights.shape[:2], size) for size in sizes.values())

        def logits(rows: slice, _: int) -> tuple[Tensor]:
            one = DecoderOutput(states[rows], contexts[rows], weights[rows])
            previous = states[rows] if getattr(module, "reads_previous_state", False) else None
            with part.named("features", "the features [B, T, F]"):
                features = module.features(one, embedded[rows], previous)
            copy_ids = batch.source[rows, None].expand_as(weights[rows])
            with part.named("forward", "logits [B, T, V]"):
                result = module(features, weights[rows], copy_ids)
            copies = isinstance(result, Tensor) and result.size(-1) == VOCABULARY + weights.size(-1)
            size = VOCABULARY + weights.size(-1) * copies
            return (part.shaped("forward", result, (*weights[rows].shape[:2], size), "logits [B, T, V]"),)

        part.equal_alone("forward", logits, "logits alone than in a batch")
        (together,) = logits(slice(None), max(LENGTHS))
        part.check_gradients(together.square().sum(), dict(module.named_parameters()))


def small_batch() -> Batch:
    """Return sentences with the lengths `LENGTHS` and targets with the lengths `TARGET_LENGTHS`."""
    source, target = torch.zeros(2, len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    for row, (s, t) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True)):
        source[row, :s] = torch.randint(EOS + 1, VOCABULARY, (s,))
        target[row, : t + 1] = torch.tensor(
            [SOS, *torch.randint(EOS + 1, VOCABULARY, (t - 1,)).tolist(), EOS]
        )
    return Batch(source, torch.tensor(LENGTHS), target, torch.arange(len(LENGTHS)))


def small_weights(batch: Batch) -> Tensor:
    """Draw attention weights for the targets of a batch, [B, T, S]."""
    scores = torch.randn(*batch.labels.shape, batch.source.size(1), device=batch.source.device)
    return scores.masked_fill(~batch.source_mask[:, None], -torch.inf).softmax(dim=-1)
