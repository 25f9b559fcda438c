"""The scheduler as a state machine: add, step, abort, a forward that fails, in any order Hypothesis likes.

After every rule all laws of `tinycb.proofs.laws` are asked, those of chunked prefill too where they apply.
Requests finish by themselves when their tokens are done; the machine ends by running what is left.
"""

from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tinycb.proofs import laws
from tinycb.proofs.serving import scheduler_engine
from tinycb.proofs.serving_run import Law, Run
from tinycb.proofs.workloads import Arrival, Serving, Workload, engine_configs, lengths
from tinycb.scheduling import block_pool

EVERY_SCHEDULER = (
    laws.PoolIsWhole,
    laws.SlotsArePrivate,
    laws.ReadsItsOwnPast,
    laws.OffersOnlyWhatWasComputed,
    laws.SameTokensAsAlone,
    laws.SomebodyAdvances,
    laws.NobodyStarves,
    laws.FailedForwardIsUndone,
    laws.NotMoreThanMaxNumSeqs,
    laws.FirstComeFirstServed,
)
CHUNKED = (laws.WithinItsBudget, laws.NoNeedlessBlock)


class AllOf(Law):
    """Several laws at once."""

    def __init__(self, parts: list[Law]) -> None:
        self.parts = parts

    def added(self, *what):
        for law in self.parts:
            law.added(*what)

    def executing(self, *what):
        for law in self.parts:
            law.executing(*what)

    def event(self, *what):
        for law in self.parts:
            law.event(*what)

    def stepped(self, *what):
        for law in self.parts:
            law.stepped(*what)

    def failed(self, *what):
        for law in self.parts:
            law.failed(*what)

    def ended(self, *what):
        for law in self.parts:
            law.ended(*what)


class SchedulerMachine(RuleBasedStateMachine):
    """One engine; `policy` says which scheduler."""

    policy = "chunked"

    @initialize(data=st.data(), size=st.sampled_from([4, 2, 1]), collide=st.booleans())
    def start(self, data, size, collide):
        prefix_hash = (lambda parent_hash, tokens: 7) if collide else block_pool.prefix_hash
        self.patch = mock.patch.object(block_pool, "prefix_hash", prefix_hash)
        self.patch.start()
        crowd = Workload(tuple(Arrival(0, 2 * size + 1, 5) for _ in range(4)))
        config = data.draw(engine_configs(crowd, (size,), crowded=data.draw(st.booleans())))
        parts = EVERY_SCHEDULER + (CHUNKED if self.policy == "chunked" else ())
        engine = scheduler_engine(self.policy, Serving(config, crowd))
        self.run = Run(engine, AllOf([law() for law in parts]))
        self.size = size

    @rule(data=st.data(), count=st.integers(1, 3), output=st.integers(1, 7))
    def add(self, data, count, output):
        prompt = data.draw(lengths(self.size, 3 * self.size + 1))
        shared = data.draw(st.sampled_from([0, prompt - 1, prompt]))
        for _ in range(count):
            index = len(self.run.requests) + len(self.run.refused)
            arrival = Arrival(0, prompt, output, shared)
            request = Workload((Arrival(0, 1, 1),) * index + (arrival,)).request(index)
            self.run.add(request, arrival)

    @rule(count=st.sampled_from([1, 1, 2, 4]))
    def step(self, count):
        for _ in range(count):
            self.run.step()

    @rule()
    def step_whose_forward_fails(self):
        self.run.step(failing=True)

    @precondition(lambda self: self.run.unfinished)
    @rule(data=st.data())
    def abort(self, data):
        self.run.abort(data.draw(st.sampled_from([request.request_id for request in self.run.unfinished])))

    @rule(name=st.sampled_from(["q0", "q1", "nobody"]))
    def abort_whoever_it_is(self, name):
        self.run.abort(name)

    @invariant()
    def what_is_running_holds_blocks(self):
        for request in self.run.engine.scheduler.running:
            assert request.block_table or request.is_finished

    def teardown(self):
        if hasattr(self, "run"):
            try:
                self.finish()
            finally:
                self.patch.stop()

    def finish(self):
        work = sum(arrival.work + 1 for arrival in self.run.arrivals.values())
        for _ in range(work + 1):
            if not self.run.engine.has_unfinished_requests():
                self.run.law.ended(self.run)
                return
            self.run.step()
        raise AssertionError(f"no end after {work} more steps")


@pytest.mark.parametrize("policy", ["chunked", "continuous", "static"])
def test_every_law_holds_after_every_rule(policy):
    thorough = settings.get_current_profile_name() == "thorough"
    machine = type("Machine", (SchedulerMachine,), {"policy": policy}).TestCase
    machine.settings = settings(
        max_examples=1500 if thorough else 150,
        stateful_step_count=30,
        deadline=None,
        database=None,
        derandomize=not thorough,
        suppress_health_check=list(HealthCheck),
    )
    machine().runTest()
