"""Profile of a training step of a small model on one thread: operators, parts, and bounds.

    python small_models.py experiment=reverse_published --csv small_models.csv

The sections of the table:

operators   torch.profiler's own time of every operator, on one batch: the sum over all calls of the shortest
            time of each call over the repetitions, because other load interrupts long operators. Recording
            takes time, so these are too long for short operators.
parts       CPU time of the parts of a step, medians over the repetitions.
programs    CPU time of whole steps that alternate batch by batch, means over the batches and medians over the
            rounds; `share` is the time divided by that of the fused step. "2 sentences of each batch" has the
            same operators and hardly any arithmetic. "useful products" are the matrix products of the fused
            step at the speed of a product of two 1024 x 1024 matrices.
translations
            CPU time per sentence of `Model.translate` with the search of the recipe and outputs of 20 tokens:
            one sentence at a time, and up to 640 sentences in one call. Medians; `share` is relative to one.
"""

import argparse
import copy
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

import timing
import torch
from flops import useful_flops
from lightning import seed_everything
from omegaconf import DictConfig
from published import published_step
from tables import print_table
from torch.nn.utils import clip_grad_norm_
from torch.profiler import ProfilerActivity, profile

from attnlab.config.compose import compose_run
from attnlab.data.corpus import Corpus
from attnlab.data.tokenization.vocabularies import Vocabularies
from attnlab.jobs.logs import quieten_lightning
from attnlab.training import build, components
from attnlab.training.model import Model
from attnlab.training.module import Seq2SeqModule
from attnlab.training.teacher_forcing import sample_forced
from attnlab.types import EOS, PAD, Batch

KINDS = {
    "matrix products": ("mm", "addmm", "addmm_", "bmm", "mv", "addmv_", "matmul", "linear", "dot"),
    "views": (
        *("slice", "select", "as_strided", "narrow", "split", "chunk", "t", "transpose", "view", "permute"),
        *("unsqueeze", "expand", "reshape", "flatten", "unbind", "detach", "resolve_conj", "alias"),
        *("_unsafe_view", "squeeze", "unflatten", "numpy_T", "lift_fresh", "broadcast_to", "expand_as"),
    ),
    "random numbers": ("uniform_", "rand", "random_"),
    "optimizer and clipping": ("_fused_adam_", "linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),
}
Row = dict[str, object]


def kind_of(name: str) -> str:
    """Return the kind of an operator of torch.profiler."""
    if not name.startswith("aten::"):
        return "optimizer and clipping" if name.startswith("Optimizer") else "Python and autograd"
    operator = name.removeprefix("aten::")
    return next((kind for kind, names in KINDS.items() if operator in names), "elementwise, sums and copies")


def profile_operators(step: Callable[[Batch], None], batch: Batch, repetitions: int) -> list[Row]:
    """Return calls and time of each kind of operator and of the 20 longest operators."""
    calls: dict[tuple[str, str, int], list[float]] = defaultdict(list)  # of the k-th call with these shapes
    for _ in range(repetitions):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            step(batch)
        seen: dict[tuple[str, str], int] = defaultdict(int)
        for event in profiler.events() or []:
            key = event.name, str(event.input_shapes)
            calls[(*key, seen[key])].append(event.self_cpu_time_total / 1e3)
            seen[key] += 1
    groups: dict[str, list[float]] = defaultdict(list)
    operators: dict[str, list[float]] = defaultdict(list)
    for (name, _, _), times in calls.items():
        if len(times) > repetitions / 2:
            groups[kind_of(name)].append(min(times))
            operators[name].append(min(times))
    total = sum(map(sum, groups.values()))
    longest = sorted(operators.items(), key=lambda item: -sum(item[1]))[:20]
    sections = [("kinds of operators", sorted(groups.items())), ("operators", longest)]
    return [
        {"section": section, "name": name, "calls": len(times)} | shares(sum(times), total)
        for section, items in sections
        for name, times in items
    ]


def shares(milliseconds: float, total: float) -> Row:
    """Return the columns of a time and its share of a total."""
    return {"ms": round(milliseconds, 2), "share": round(milliseconds / total, 3)}


def time_parts(module: Seq2SeqModule, batches: Sequence[Batch], repetitions: int) -> list[Row]:
    """Return the CPU time of each part of a step, means over batches."""
    module = copy.deepcopy(module).train()
    network = module.network
    parameters = list(network.parameters())
    optimizer = module.make_optimizer(parameters)
    rounds: dict[str, list[float]] = defaultdict(list)
    for _ in range(repetitions + 1):
        spent: dict[str, float] = defaultdict(float)
        for batch in batches:
            forced = sample_forced(module.teacher_forcing, 0, batch.inputs)
            clock = [time.process_time()]
            encoded, state = network.encode(batch)
            clock.append(time.process_time())
            decoded = network.decode(encoded, state, batch, forced)
            clock.append(time.process_time())
            real = batch.labels != PAD
            logits = network.logits(decoded, batch.copy_ids, real)
            loss = module.cross_entropy(logits, batch.labels[real])
            clock.append(time.process_time())
            loss.backward()
            clock.append(time.process_time())
            clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            clock.append(time.process_time())
            names = ("encoder", "decoder loop", "logits and loss", "backward pass", "clipping and optimizer")
            for name, start, end in zip(names, clock, clock[1:], strict=False):
                spent[name] += 1e3 * (end - start) / len(batches)
        for name, milliseconds in spent.items():
            rounds[name].append(milliseconds)
    times = {name: median(parts[1:]) for name, parts in rounds.items()}
    total = sum(times.values())
    return [
        {"section": "parts", "name": name, "calls": 1} | shares(part, total) for name, part in times.items()
    ]


def time_programs(
    module: Seq2SeqModule,
    programs: dict[str, tuple[Callable[[Batch], object], Sequence[Batch]]],
    rounds: int,
) -> list[Row]:
    """Return the CPU time of each program; `share` is relative to the fused step."""
    product, flops = timing.gemm(timing.Settings(torch.device("cpu"), "32-true", 1.0, 1))
    batches = programs["fused"][1]
    programs = programs | {"matrix product": (product, batches)}
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds + 1):
        spent: dict[str, float] = defaultdict(float)
        for i in range(len(batches)):
            for name, (work, inputs) in programs.items():
                start = time.process_time()
                work(inputs[i])
                spent[name] += 1e3 * (time.process_time() - start) / len(batches)
        for name, milliseconds in spent.items():
            times[name].append(milliseconds)
    medians = {name: median(parts[1:]) for name, parts in times.items()}
    useful = fmean(3 * useful_flops(module.network, batch) for batch in batches)
    medians["useful products"] = medians.pop("matrix product") * useful / flops
    fused = medians["fused"]
    return [
        {"section": "programs", "name": name, "calls": 1} | shares(part, fused)
        for name, part in medians.items()
    ]


def time_translations(
    config: DictConfig, corpus: Corpus, vocabularies: Vocabularies, rounds: int
) -> list[Row]:
    """Return the CPU time per sentence of single sentences and of many in one call."""
    network = build.build_network(config, vocabularies).eval()
    with torch.no_grad():
        network.readout.output.bias[EOS] = -1e9  # all outputs have the maximum length
    prepare = build.build_preparation(config)
    device = torch.device("cpu")
    model = Model(config=config, vocabularies=vocabularies, network=network, prepare=prepare, device=device)
    sources = [pair.source for pair in corpus.test[:640]]
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for sentences in [[source] for source in sources[:100]] + [sources]:
            start = time.thread_time()
            model.translate(sentences, max_length=20, progress=False)
            name = "one sentence" if len(sentences) == 1 else f"{len(sentences)} sentences"
            times[name].append(1e3 * (time.thread_time() - start) / len(sentences))
    medians = {name: median(each) for name, each in times.items()}
    return [
        {"section": "translations", "name": name, "calls": 1} | shares(each, medians["one sentence"])
        for name, each in medians.items()
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="settings of the model; experiment=reverse_published is compared with the published loop",
    )
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path, help="file of the table")
    options = parser.parse_intermixed_args()

    quieten_lightning()
    torch.set_num_threads(1)
    shared = [*options.overrides, "trainer.accelerator=cpu", "trainer.precision=32-true"]
    config = compose_run([*shared, "batching.bucket_by_length=true"])
    seed_everything(config.seed, verbose=False)
    corpus = build.build_corpus(config)
    vocabularies = build.build_vocabularies(config, corpus)
    settings = timing.Settings.of(config)
    ours = timing.take_batches(config, corpus, vocabularies, options.batches, settings.device)
    module = components.build_module(config, build.build_network(config, vocabularies), vocabularies, corpus)
    fused = timing.training_step(module, timing.fast_loss, settings)
    pairs = [Batch(*(None if part is None else part[:2] for part in batch)) for batch in ours]
    programs: dict[str, tuple[Callable[[Batch], object], Sequence[Batch]]] = {
        "fused": (fused, ours),
        "plain": (timing.training_step(module, timing.plain_loss, settings), ours),
        "2 sentences of each batch": (timing.training_step(module, timing.fast_loss, settings), pairs),
    }
    if "experiment=reverse_published" in options.overrides:
        at_random = compose_run(shared)
        theirs = timing.take_batches(at_random, corpus, vocabularies, options.batches, settings.device)
        loop = published_step("reverse_published", vocabularies.target.size, settings)
        programs["published, random batches"] = loop, theirs
    middle = sorted(ours, key=lambda batch: batch.source.size(1))[len(ours) // 2]
    fused(middle)
    rows = [
        *time_programs(module, programs, options.rounds),
        *time_parts(module, ours, options.rounds),
        *profile_operators(fused, middle, 3 * options.rounds),
        *time_translations(config, corpus, vocabularies, options.rounds),
    ]
    title = f"{config.name}, {module.network.parameter_count:,} parameters, one thread"
    print_table(rows, title, options.csv)


if __name__ == "__main__":
    main()
