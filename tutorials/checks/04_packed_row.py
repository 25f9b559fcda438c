"""Every step of up to three requests with one to three tokens each, beside tinycb's `pack`."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from types import ModuleType

from tinycb.learn import expect
from tinycb.packing import Row, pack

HINTS = [
    "A request runs token_ids[num_computed:]. Where does that slice begin in its own text?",
    "The position of a token is its index in the request's own list, whatever stands before it in the row.",
    "One loop over the requests, and in it one over range(num_computed, len(token_ids)).",
]


def check(exercise: ModuleType) -> None:
    """Raise Wrong, naming the property, unless `packed_row` is right."""
    shapes = [(length, computed) for length in (1, 2, 3) for computed in range(length)]
    for count in (1, 2, 3):
        for chosen in product(shapes, repeat=count):
            _one_case(exercise, chosen)


def _one_case(exercise: ModuleType, chosen: tuple[tuple[int, int], ...]) -> None:
    requests = []
    for r, (length, done) in enumerate(chosen, start=1):
        requests.append(([10 * r + i for i in range(length)], done))
    given = deepcopy(requests)
    got = exercise.packed_row(requests)
    case = {"requests": given, "got": got}
    expect(given == requests, "the requests that were given were changed", **case)
    is_three = isinstance(got, tuple) and len(got) == 3 and all(isinstance(part, list) for part in got)
    expect(is_three, "the answer is not three lists: tokens, positions, owners", **case)
    tokens, positions, owners = got
    computed = {token for token_ids, done in given for token in token_ids[:done]}
    expect(not computed & set(tokens), "a token runs again that is computed already", **case)
    wanted = [token for token_ids, done in given for token in token_ids[done:]]
    expect(sorted(tokens) == wanted, "a token is missing, or there twice", **case)
    expect(tokens == wanted, "the tokens are not in the order of the requests", **case)
    one_each = len(positions) == len(owners) == len(tokens)
    expect(one_each, "there is not one position and one owner for each token", **case)
    whose = {token: r for r, (token_ids, _) in enumerate(given) for token in token_ids}
    expect(owners == [whose[token] for token in tokens], "a token was given to another request", **case)
    where = {token: i for token_ids, _ in given for i, token in enumerate(token_ids)}
    expect(
        positions == [where[token] for token in tokens],
        "a position is not the token's place in its own text",
        **case,
    )
    rows = [Row(str(r), ids, done, len(ids) - done, range(len(ids))) for r, (ids, done) in enumerate(given)]
    batch = pack(rows, block_size=1)
    same = (tokens, positions) == (batch.token_ids.tolist(), batch.positions.tolist())
    expect(same, "tinycb packs another row", **case)
