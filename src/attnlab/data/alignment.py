"""Gold alignments as boolean matrices over target and source positions.

B, T, S as in `attnlab.types`
"""

import re
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnlab.data.corpus import Alignment
from attnlab.errors import UserError
from attnlab.types import Batch


def alignment_matrix(batch: Batch, alignments: Sequence[Alignment | None]) -> Tensor:
    """Return the gold alignments of a batch's pairs, [B, T, S] bool, True at linked positions.

    EOS positions have no links, and links to truncated tokens are dropped.
    """
    gold = torch.zeros(*batch.labels.shape, batch.source.size(1), dtype=torch.bool)  # [B, T, S]
    links = [
        (row, target, source)
        for row, alignment in enumerate(alignments)
        for source, target in alignment or ()
        if target < gold.size(1) and source < gold.size(2)
    ]
    if links:
        gold[torch.tensor(links).unbind(1)] = True
    return gold.to(batch.source.device) & batch.target_text[:, :, None] & batch.source_text[:, None]


def output_links(alignment: Alignment, batch: Batch, row: int, output: Sequence[int]) -> list[list[int]]:
    """Return the sorted links [target, source] of a gold alignment that apply to an output without EOS.

    They apply for as long as the output equals the reference, which is a row of the batch. Links to truncated
    tokens are dropped.
    """
    reference = batch.labels[row, batch.target_text[row]].tolist()
    equal = [ours == theirs for ours, theirs in zip(output, reference, strict=False)]
    prefix = [*equal, False].index(False)
    sources = int(batch.source_text[row].sum())
    return sorted(
        [target, source] for source, target in set(alignment) if target < prefix and source < sources
    )


def parse_links(line: str, place: str, signs: str = "-") -> Iterator[tuple[int, str, int]]:
    """Yield the links of a line in Pharaoh format, such as `0-0 1-2`: source token, sign, target token."""
    for link in line.split():
        match = re.fullmatch(rf"(\d+)([{signs}])(\d+)", link, re.ASCII)
        if match is None:
            formats = " or ".join(f"SOURCE{sign}TARGET" for sign in signs)
            raise UserError(
                f"{place}: {link[:50]!r} is not a link. Write {formats} with token numbers from 0, such as "
                "0-0 1-2"
            )
        yield int(match[1]), match[2], int(match[3])
