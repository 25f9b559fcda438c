"""Where the time of a step goes, part by part, and how far it is from its matrix products alone.

No line of the code that is measured knows of it. While a profile runs, the callables that `PARTS` names are
replaced by ones that look at the clock before and after. A call's own time is what the calls inside it leave:
so nothing counts twice, and with *everything else*, which no part claims, the parts are the step.

The products take in the norm before them and the residual after them, so these cannot be timed from outside.
But after each step its products run once more, alone, on as many rows: that is the floor, and what the step
took beyond it is what was fused into them. (The gate, which belongs to a product's result, is in the floor.)

Times are the host's: on a GPU, which works on while the host goes ahead, they would say nothing.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

from tinycb.engine import Engine
from tinycb.request import Request
from tinycb.tracing.records import StepRecord

__all__ = ["ELSE", "FUSED", "PARTS", "PRODUCTS", "Profile", "profile"]

PRODUCTS, FUSED, ELSE = "matrix products, alone", "norm and residual in them", "everything else"

# The part → the callables that are it, as module:path, or as engine:path where they are the engine's own.
PARTS: Mapping[str, Sequence[str]] = {
    PRODUCTS: ("tinycb.model.linear:Linear.__call__",),
    "attention, with rope and cache write": ("tinycb.model.llama:attention",),
    "the forward beside them": ("tinycb.model.llama:Llama.forward",),
    "packing": ("tinycb.executors:pack", "tinycb.model.attention:AttentionMetadata.build"),
    "scheduling": ("engine:scheduler.schedule", "engine:scheduler.update"),
    "sampling": ("tinycb.model.sampling:sample",),
}


@dataclass(slots=True)
class Profile:
    """A run's seconds by part, over all its steps. Their sum is `seconds`.

    output_tokens: that the run sampled. tokens: that went through its forwards, padding included.
    """

    steps: int = 0
    tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)

    @property
    def floor(self) -> float:
        """Seconds of the products alone."""
        return self.parts.get(PRODUCTS, 0.0)


def profile(
    engine: Engine, requests: Iterable[Request], on_step: Callable[[StepRecord], None] = lambda record: None
) -> Profile:
    """Serve the requests to the end and say where the time went. on_step: sees each record, outside the time.

    The engine should be warm: what only a first forward costs is in no part of its own.
    Raises ValueError for a request that cannot be served, and whatever the executor raises.
    """
    for request in requests:
        engine.add_request(request)
    names = [PRODUCTS, FUSED, *(name for name in PARTS if name != PRODUCTS), ELSE]
    found = Profile(parts=dict.fromkeys(names, 0.0))
    timer = _Timer()
    floor = _Floor()
    with _replaced(engine, timer, floor):
        while engine.has_unfinished_requests():
            timer.clear()
            floor.calls.clear()
            start = time.perf_counter()
            record = engine.step()
            seconds = time.perf_counter() - start
            alone = floor.measure()
            _add(found, record, seconds, timer.own, alone)
            on_step(record)
    return found


def _add(found: Profile, record: StepRecord, seconds: float, own: Mapping[str, float], alone: float) -> None:
    found.steps += 1
    found.tokens += sum(record.scheduled.values()) + record.num_padded
    found.output_tokens += len(record.sampled)
    found.seconds += seconds
    for name, share in own.items():
        found.parts[name] += share
    found.parts[ELSE] += seconds - sum(own.values())
    found.parts[PRODUCTS] += alone - own.get(PRODUCTS, 0.0)
    found.parts[FUSED] += own.get(PRODUCTS, 0.0) - alone


class _Timer:
    """Seconds that each part spent itself, in the step that runs now."""

    def __init__(self) -> None:
        self.own: dict[str, float] = {}
        self._inside: list[float] = []  # of each call under way, what the calls inside it took

    def clear(self) -> None:
        self.own.clear()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its own time added to the part."""
        own, inside, clock = self.own, self._inside, time.perf_counter

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            inside.append(0.0)
            start = clock()
            try:
                return function(*args, **kwargs)
            finally:
                took = clock() - start
                own[part] = own.get(part, 0.0) + took - inside.pop()
                if inside:
                    inside[-1] += took

        return call


class _Floor:
    """A step's products once more, in the same order, on as many rows of random numbers, and nothing else."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple[int, ...]]] = []  # the layer, and the shape of what it multiplies
        self._product: Callable[..., Any] | None = None
        self._inputs: dict[tuple[int, ...], Any] = {}

    def noted(self, product: Callable[..., Any]) -> Callable[..., Any]:
        """The product, which from now on is remembered."""
        self._product = product

        @wraps(product)
        def call(layer: Any, x: Any, **more: Any) -> Any:
            self.calls.append((layer, tuple(x.shape)))
            return product(layer, x, **more)

        return call

    def measure(self) -> float:
        """Seconds that the products of the step take."""
        if not self.calls or self._product is None:
            return 0.0
        import torch

        for layer, shape in self.calls:
            if shape not in self._inputs:
                dtype = torch.float32 if getattr(layer, "weight", None) is None else layer.weight.dtype
                self._inputs[shape] = torch.randn(shape).to(dtype)
        with torch.inference_mode():
            start = time.perf_counter()
            for layer, shape in self.calls:
                self._product(layer, self._inputs[shape])
            return time.perf_counter() - start


@contextmanager
def _replaced(engine: Engine, timer: _Timer, floor: _Floor) -> Iterator[None]:
    """Every callable of `PARTS` by one that is timed, and put back in the end."""
    with ExitStack() as stack:
        for part, paths in PARTS.items():
            for path in paths:
                owner, name = _find(path, engine)
                raw: Any = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name)
                is_classmethod = isinstance(raw, classmethod)
                function = raw.__func__ if is_classmethod else raw
                if part == PRODUCTS:
                    function = floor.noted(function)
                timed = timer.timed(part, function)
                stack.callback(_put_back, owner, name, vars(owner).get(name, _ABSENT))
                setattr(owner, name, classmethod(timed) if is_classmethod else timed)
        yield


_ABSENT = object()


def _put_back(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:  # a method of the class, of which the instance had none of its own
        delattr(owner, name)
    else:
        setattr(owner, name, before)


def _find(path: str, engine: Engine) -> tuple[Any, str]:
    """What holds the callable, and under which name."""
    place, _, names = path.partition(":")
    *through, name = names.split(".")
    owner: Any = engine if place == "engine" else importlib.import_module(place)
    for step in through:
        owner = getattr(owner, step)
    return owner, name
