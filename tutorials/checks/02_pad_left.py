"""Every table of up to three prompts of one to four tokens, beside the row that tinycb packs."""

from __future__ import annotations

from itertools import product
from types import ModuleType

from tinycb.learn import expect
from tinycb.packing import Row, pack

HINTS = [
    "How wide is the table? As wide as its longest prompt.",
    "A shorter prompt lacks width - len(prompt) entries; they come before its own tokens.",
    "Do not look at the tokens to find out what is padding: you know it when you put it there.",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `pad_left` is right."""
    for pad in (0, 7):
        for count in (1, 2, 3):
            for lengths in product((1, 2, 3, 4), repeat=count):
                _one_case(exercise, [[10 * r + i + 1 for i in range(n)] for r, n in enumerate(lengths)], pad)
    _one_case(exercise, [[7, 1], [7], [7, 7, 2, 7]], 7)


def _one_case(exercise: ModuleType, prompts: list[list[int]], pad: int) -> None:
    given = [list(prompt) for prompt in prompts]
    got = exercise.pad_left(prompts, pad)
    case = {"prompts": given, "pad_token_id": pad, "got": got}
    expect(prompts == given, "the prompts that were given were changed", **case)
    is_pair = isinstance(got, tuple) and len(got) == 2 and all(isinstance(part, list) for part in got)
    expect(is_pair, "the answer is not two tables, tokens and padding", **case)
    tokens, is_padding = got
    same_shape = [len(row) for row in tokens] == [len(row) for row in is_padding]
    expect(same_shape, "the two tables have different shapes", **case)
    expect(len(tokens) == len(given), "there is not one row for each prompt", **case)
    expect(len({len(row) for row in tokens}) == 1, "the rows are of different lengths", **case)
    longest = max(len(prompt) for prompt in given)
    expect(len(tokens[0]) == longest, "the table is not as wide as the longest prompt", **case)
    for prompt, row, padded in zip(given, tokens, is_padding, strict=True):
        expect(row[longest - len(prompt) :] == prompt, "a prompt does not end at the right edge", **case)
        expect(
            all(t == pad for t in row[: longest - len(prompt)]), "an entry before it is no pad token", **case
        )
        wanted = [True] * (longest - len(prompt)) + [False] * len(prompt)
        expect(padded == wanted, "a token of a prompt was called padding, or padding a token", **case)
    rows = [Row(str(r), prompt, 0, len(prompt), list(range(len(prompt)))) for r, prompt in enumerate(given)]
    packed = pack(rows, block_size=1, pad=True)
    flat = [flag for row in is_padding for flag in row]
    expect(
        flat == (packed.slot_mapping < 0).tolist(),
        "tinycb padded other entries",
        **case,
        tinycb=(packed.slot_mapping < 0).tolist(),
    )
