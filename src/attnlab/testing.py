"""Checks of mechanisms, encoders, decoders and readouts on a small batch of unequal lengths.

attnlab checks every part from outside before it trains with it. A repository with parts of its own can do
the same in its tests::

    from attnlab.testing import check_attention

    def test_cosine() -> None:
        check_attention(partial(Cosine, temperature=0.1))
"""

import re
import traceback
from collections.abc import Callable, Iterator, Sequence
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

LENGTHS = (5, 2, 4)
"""Lengths S of the sentences of the batch: each but the first has padding."""
QUERIES = 2  # Q
QUERY_SIZE, MEMORY_SIZE, INPUT_SIZE = 8, 12, 6
"""H, D and E. They are unequal, so that swapped sizes fail, and even, as heads need them."""
TARGET_LENGTHS, VOCABULARY = (4, 3, 2), 11
"""T of the sentences and V."""
TOLERANCE = 1e-4


class PartError(UserError):
    """A part from outside does not keep the contract of its base class."""


class Part:
    """A part under test: it calls methods and explains what is wrong with their results.

    Args:
        make: returns the module.
        base: class from which the module must be derived.
    """

    def __init__(self, make: Callable[..., Any], base: type[Any]) -> None:
        self.make, self.base = make, base
        target = make
        while hasattr(target, "func"):  # a partial
            target = target.func
        self.cls: Any = target if isinstance(target, type) else None

    def build(self, **arguments: Any) -> Any:
        """Build the module, which must be of the base class."""
        with self.named("__init__", ""):
            module = self.make(**arguments)
        self.cls = type(module)
        if not isinstance(module, self.base):
            self.fail("", f"is no {self.base.__name__}: derive it from {self.base.__module__}")
        return module

    def place(self, method: str = "") -> str:
        """Return the name of the class and of a method, with the file and the line of its definition."""
        if self.cls is None:
            return "the part"
        name = ".".join(filter(None, [self.cls.__module__, self.cls.__qualname__, method]))
        code = getattr(vars(self.cls).get(method), "__code__", None)
        line = "" if code is None else f":{code.co_firstlineno}"
        return f"{name} ({Path(self.file).name}{line})" if self.file else name

    @property
    def file(self) -> str:
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
            own = [frame for frame in frames if frame.filename == self.file]
            where = f", line {own[-1].lineno}: {own[-1].line}" if own else ""
            reason = str(error).strip().split("\n")[0]
            hint = ". Call super().__init__ first" if _is_bare(error) else ""
            expectation = f". It must return {expected}" if expected else ""
            raise PartError(
                f"{self.place(method)} raises {type(error).__name__}: {reason}{hint}{where}{expectation}"
            ) from error

    def fail(self, method: str, problem: str) -> None:
        """Raise `PartError` with the place of a method."""
        raise PartError(f"{self.place(method)} {problem}")

    def shaped(self, method: str, value: Any, shape: Sequence[int], letters: str) -> Tensor:
        """Return a result, of any shape, after checking that it is finite and has the expected shape."""
        expected = f"{letters} = {[*shape]}"
        if value is None:
            self.fail(method, f"returns None: return a tensor {expected}")
        if not isinstance(value, Tensor):
            self.fail(method, f"returns {type(value).__name__}: return a tensor {expected}")
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


def _is_bare(error: Exception) -> bool:
    """Return whether an error comes from a module whose base constructor was not called."""
    missing = re.search(
        "before Module.__init__|no attribute '(query_size|memory_size|normaliser)'", str(error)
    )
    return isinstance(error, AttributeError) and missing is not None


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
    several, and for repeated calls; finite gradients; dependence on the query or on the memory.

    Args:
        make: the class, or a partial of it with its settings; called with `query_size` and `memory_size`.
        query_size: H.
        memory_size: D; give equal sizes for a mechanism that needs them.

    Raises:
        PartError: names the class, the method, its file and line, and what is expected.
    """
    with isolated():
        part = Part(make, Attention)
        module = part.build(query_size=query_size, memory_size=memory_size).eval()
        _check_methods(part)
        query = torch.randn(len(LENGTHS), QUERIES, module.query_size)  # [B, Q, H]
        memory = _memory(module.memory_size)
        scores = _check_scores(part, module, query, memory)
        contexts, weights = _check_walk(part, module, query, memory)
        _check_padding(part, module, query, memory, contexts, weights)
        _check_queries(part, module, query, memory, contexts)
        _check_influence(part, module, query, memory, scores)


def _memory(size: int, lengths: Sequence[int] = LENGTHS) -> Memory:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # [B, S]
    states = torch.randn(len(lengths), max(lengths), size)  # [B, S, D]
    return Memory(states, mask, hidden=states[:, :1], cell=states[:, :1])


def _alone(memory: Memory, row: int, length: int) -> Memory:
    """Return the memory of one sentence without padding."""
    one = slice(row, row + 1)
    hidden = None if memory.hidden is None else memory.hidden[one]
    cell = None if memory.cell is None else memory.cell[one]
    return Memory(memory.states[one, :length], memory.mask[one, :length], hidden, cell)


def _check_methods(part: Part) -> None:
    methods = ("score", "weigh", "forward")
    if all(getattr(part.cls, name) is getattr(Attention, name) for name in methods):
        near = get_close_matches("score", set(dir(part.cls)) - set(dir(Attention)), 1, 0.6)
        hint = f" It has {near[0]!r}: rename it" if near else " Implement it"
        part.fail("", f"has no method score(query, keys, state).{hint}")


def _check_scores(part: Part, module: Attention, query: Tensor, memory: Memory) -> Tensor | None:
    """Check the scores by themselves; return them, [B, Q, S], or None if the mechanism has none."""
    if type(module).score is Attention.score or type(module).forward is not Attention.forward:
        return None
    batch, count, source = len(query), query.size(1), memory.states.size(1)
    with part.named("project", "the keys [B, S, …]"):
        keys: Any = module.project(memory)
    if keys is None:
        part.fail("project", f"returns None: return the keys [B, S, …], with B = {batch} and S = {source}")
    with part.named("begin", "the state before the first step"):
        state = module.begin(memory)
    expected = f"scores [B, Q, S] = {[batch, count, source]} of a query {[*query.shape]}"
    with part.named("score", expected):
        scores = module.score(query, keys, state)
    scores = part.shaped("score", scores, (batch, count, source), "[B, Q, S]")
    sums = scores.sum(dim=-1)
    if (scores >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=TOLERANCE):
        part.fail(
            "score", "returns weights that sum to 1: return scores, to which the base class applies softmax"
        )
    return scores


def _walk(part: Part, module: Attention, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    """Attend two times in a row; return the contexts [2, B, Q, D] and the weights [2, B, Q, S]."""
    shape = (len(query), query.size(1))
    results = []
    with part.named("forward", "context [B, Q, D], weights [B, Q, S] and state"):
        keys, state = module.project(memory), module.begin(memory)
        for _ in range(2):
            context, weights, state = module(query, memory, keys, state)
            results.append((context, weights))
    for context, weights in results:
        part.shaped("forward", context, (*shape, module.context_size), "context [B, Q, D]")
        part.shaped("forward", weights, (*shape, memory.states.size(1)), "weights [B, Q, S]")
    contexts, all_weights = zip(*results, strict=True)
    return torch.stack(contexts), torch.stack(all_weights)


def _check_walk(part: Part, module: Attention, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
    contexts, weights = _walk(part, module, query, memory)
    if weights[:, ~memory.mask[:, None].expand_as(weights[0])].any():
        part.fail("forward", "gives weight to padding: apply memory.mask, which is True at real tokens")
    again, _ = _walk(part, module, query, memory)
    part.equal("forward", contexts, again, "gives other results in a second call: return state, store none")
    return contexts, weights


def _check_padding(
    part: Part, module: Attention, query: Tensor, memory: Memory, contexts: Tensor, weights: Tensor
) -> None:
    method = "score" if type(module).score is not Attention.score else "forward"
    padded = memory._replace(states=memory.states.masked_fill(~memory.mask[..., None], 7.0))
    part.equal(method, _walk(part, module, query, padded)[0], contexts, "depends on the values at padding")
    for row, length in enumerate(LENGTHS):
        context, own = _walk(part, module, query[row : row + 1], _alone(memory, row, length))
        problem = (
            "gives a sentence other results alone than in a batch with longer ones: keys.size(1) is the "
            "padded length, memory.mask.sum(-1) the true one"
        )
        part.equal(method, own[:, 0], weights[:, row, :, :length], problem)
        part.equal(method, context[:, 0], contexts[:, row], problem)


def _check_queries(part: Part, module: Attention, query: Tensor, memory: Memory, contexts: Tensor) -> None:
    for index in range(query.size(1)):
        one, _ = _walk(part, module, query[:, index : index + 1], memory)
        problem = "gives a query other results alone than among others"
        part.equal("forward", one[:, :, 0], contexts[:, :, index], problem)


def _check_influence(
    part: Part, module: Attention, query: Tensor, memory: Memory, scores: Tensor | None
) -> None:
    """Check the gradients, and that the result depends on the query or the memory."""
    query = query.clone().requires_grad_()
    states = memory.states.clone().requires_grad_()
    memory = memory._replace(states=states)
    contexts, weights = _walk(part, module.train(), query, memory)
    total = contexts.square().sum() + (weights * torch.arange(weights.size(-1))).sum()
    if not total.requires_grad:
        return
    total.backward()  # type: ignore[no-untyped-call]
    for name, tensor in [("query", query), ("memory", states), *module.named_parameters()]:
        if tensor.grad is not None and not tensor.grad.isfinite().all():
            part.fail("forward", f"has a gradient of NaN or infinity for {name}")
    module.eval()
    if scores is None or not [*module.parameters()]:
        return
    with torch.no_grad():
        for parameter in module.parameters():  # initial zeros hide what a mechanism depends on
            parameter.copy_(torch.randn_like(parameter) * 0.5)
        first = _walk(part, module, query, memory)[1]
        by_query = _walk(part, module, torch.randn_like(query), memory)[1]
        other = memory._replace(states=torch.randn_like(states))
        by_memory = _walk(part, module, query, other)[1]
    if torch.equal(first, by_query) and torch.equal(first, by_memory):
        part.fail("score", "gives the same weights for every query and every memory: it attends to nothing")


def check_encoder(make: Callable[..., Encoder], input_size: int = INPUT_SIZE) -> None:
    """Check that an encoder keeps the contract of `Encoder`.

    Shapes; no influence of padding; equal states for a sentence alone and in a batch; finite gradients.

    Args:
        make: the class, or a partial of it with its settings; called with `input_size`.
        input_size: E.

    Raises:
        PartError: names the class, the method, its file and line, and what is expected.
    """
    with isolated():
        part = Part(make, Encoder)
        module = part.build(input_size=input_size).eval()
        embedded = torch.randn(len(LENGTHS), max(LENGTHS), input_size).requires_grad_()  # [B, S, E]
        lengths = torch.tensor(LENGTHS)
        mask = torch.arange(max(LENGTHS)) < lengths[:, None]  # [B, S]
        memory = _encode(part, module, embedded, lengths, mask)
        states = memory.states[mask]  # [N, D]
        other = _encode(part, module, embedded.masked_fill(~mask[..., None], 7.0), lengths, mask)
        part.equal("forward", other.states[mask], states, "depends on the values at padding")
        for row, length in enumerate(LENGTHS):
            one = slice(row, row + 1)
            alone = _encode(part, module, embedded[one, :length], lengths[one], mask[one, :length])
            problem = "gives a sentence other states alone than in a batch with longer ones"
            part.equal("forward", alone.states[0], memory.states[row, :length], problem)
            if memory.hidden is not None and alone.hidden is not None:
                part.equal("forward", alone.hidden[0], memory.hidden[row], problem)
        states = _encode(part, module.train(), embedded, lengths, mask).states[mask]
        states.square().sum().backward()  # type: ignore[no-untyped-call]
        if embedded.grad is None or not embedded.grad[mask].any():
            part.fail("forward", "does not depend on the embedded source: no gradient reaches it")
        if not embedded.grad.isfinite().all():  # type: ignore[union-attr]
            part.fail("forward", "has a gradient of NaN or infinity")


def _encode(part: Part, module: Encoder, embedded: Tensor, lengths: Tensor, mask: Tensor) -> Memory:
    with part.named("forward", "Memory(states=[B, S, D], mask=mask)"):
        memory = module(embedded, lengths, mask)
    if not isinstance(memory, Memory):
        part.fail("forward", f"returns {type(memory).__name__}: return Memory(states=[B, S, D], mask=mask)")
    part.shaped("forward", memory.states, (*mask.shape, module.memory_size), "states [B, S, D]")
    if memory.hidden is None and module.layers:
        part.fail("forward", f"returns no final states: layers={module.layers} promises hidden [B, L, D]")
    return memory  # type: ignore[no-any-return]


def check_decoder(make: Callable[..., Decoder], attention: Attention) -> None:
    """Check that a decoder keeps the contract of `Decoder`.

    The teacher-forced pass equals the stepwise pass, a sentence has equal states alone and in a batch, and
    gradients are finite.

    Args:
        make: the class, or a partial of it with its settings; called with `input_size` and `attention`.
        attention: mechanism for queries of the decoder's size.

    Raises:
        PartError: names the class, the method, its file and line, and what is expected.
    """
    with isolated():
        part = Part(make, Decoder)
        module = part.build(input_size=INPUT_SIZE, attention=attention).eval()
        embedded = torch.randn(len(LENGTHS), 3, INPUT_SIZE).requires_grad_()  # [B, T, E]
        memory = _memory(attention.memory_size)
        shape = module.state_shape
        layers = tuple(
            tuple(torch.randn(len(LENGTHS), 1, shape.size) for _ in range(shape.states_per_layer))
            for _ in range(shape.layers)
        )
        states = _decode(part, module, embedded, layers, memory)
        with part.named("step", "an output [B, Q, …] and the next state"):
            keys, state, outputs = module.attention.project(memory), module.begin(layers, memory), []
            for inputs in module.project(embedded).split(1, dim=1):
                output, state = module.step(inputs, state, memory, keys)
                outputs.append(output.states)
        part.equal(
            "forward", states, torch.cat(outputs, dim=1), "differs from one call of step after the other"
        )
        for row, length in enumerate(LENGTHS):
            one = slice(row, row + 1)
            own = tuple(tuple(tensor[one] for tensor in layer) for layer in layers)
            single = _decode(part, module, embedded[one], own, _alone(memory, row, length))
            part.equal(
                "forward", single[0], states[row], "gives a sentence other states alone than in a batch"
            )
        states = _decode(part, module.train(), embedded, layers, memory)
        states.square().sum().backward()  # type: ignore[no-untyped-call]
        if embedded.grad is None or not embedded.grad.isfinite().all() or not embedded.grad.any():
            part.fail("forward", "has no finite gradient for the embedded target")


def _decode(part: Part, module: Decoder, embedded: Tensor, layers: Any, memory: Memory) -> Tensor:
    with part.named("forward", "DecoderOutput with states [B, T, H]"):
        state = module.begin(layers, memory)
        output = module(embedded, state, memory, module.attention.project(memory))
    return part.shaped(
        "forward", output.states, (*embedded.shape[:2], module.output_size), "states [B, T, H]"
    )


def check_readout(make: Callable[..., nn.Module]) -> None:
    """Check that a readout keeps the contract of `Readout`.

    Shapes; equal logits for a sentence alone and in a batch; finite gradients.

    Args:
        make: the class, or a partial of it with its settings; called with `state_size`, `context_size`,
            `input_size` and `vocabulary_size`.

    Raises:
        PartError: names the class, the method, its file and line, and what is expected.
    """
    with isolated():
        part = Part(make, nn.Module)
        module = part.build(
            state_size=QUERY_SIZE, context_size=MEMORY_SIZE, input_size=INPUT_SIZE, vocabulary_size=VOCABULARY
        ).eval()
        batch, weights = small_batch(), small_weights()
        shape = weights.shape[:2]
        states = torch.randn(*shape, QUERY_SIZE).requires_grad_()  # [B, T, H]
        contexts, embedded = torch.randn(*shape, MEMORY_SIZE), torch.randn(*shape, INPUT_SIZE)

        def logits(rows: slice) -> Tensor:
            one = DecoderOutput(states[rows], contexts[rows], weights[rows])
            previous = states[rows] if getattr(module, "reads_previous_state", False) else None
            with part.named("features", "the features [B, T, F]"):
                features = module.features(one, embedded[rows], previous)
            copy_ids = batch.source[rows, None].expand_as(weights[rows])
            with part.named("forward", "logits [B, T, V]"):
                result = module(features, weights[rows], copy_ids)
            copies = isinstance(result, Tensor) and result.size(-1) == VOCABULARY + weights.size(-1)
            size = VOCABULARY + weights.size(-1) * copies
            return part.shaped("forward", result, (*weights[rows].shape[:2], size), "logits [B, T, V]")

        together = logits(slice(None))
        for row in range(len(LENGTHS)):
            problem = "gives a sentence other logits alone than in a batch"
            part.equal("forward", logits(slice(row, row + 1))[0], together[row], problem)
        together.square().sum().backward()  # type: ignore[no-untyped-call]
        if not any(p.grad is not None and p.grad.isfinite().all() for p in module.parameters()):
            part.fail("forward", "has no finite gradient for its parameters")


def small_batch() -> Batch:
    """Return sentences with the lengths `LENGTHS` and targets with the lengths `TARGET_LENGTHS`."""
    source, target = torch.zeros(2, len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    for row, (s, t) in enumerate(zip(LENGTHS, TARGET_LENGTHS, strict=True)):
        source[row, :s] = torch.randint(EOS + 1, VOCABULARY, (s,))
        target[row, : t + 1] = torch.tensor(
            [SOS, *torch.randint(EOS + 1, VOCABULARY, (t - 1,)).tolist(), EOS]
        )
    return Batch(source, torch.tensor(LENGTHS), target, torch.arange(len(LENGTHS)))


def small_weights() -> Tensor:
    """Return attention weights for the targets of `_batch`, [B, T, S]."""
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None, None]  # [B, 1, S]
    scores = torch.randn(len(LENGTHS), max(TARGET_LENGTHS), max(LENGTHS))
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
