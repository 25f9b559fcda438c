"""A second, naive bookkeeping of a run, from its records alone, that recomputes every decision's numbers.

It knows the policy's settings and what the records say happened, and nothing of the scheduler's state. Where
a decision says `free=2`, the shadow has counted to 2 by itself.
"""

from dataclasses import dataclass, field

from tinycb import Engine
from tinycb.scheduling import Decision, Reason
from tinycb.tracing import StepRecord


@dataclass
class Known:
    length: int
    max_tokens: int
    prompt: int
    computed: int = 0
    table: list[int] = field(default_factory=list)
    preempted: bool = False
    finished_at: int | None = None

    @property
    def output(self) -> int:
        return self.length - self.prompt


class Shadow:
    def __init__(self, engine: Engine) -> None:
        self.config = engine.config
        self.known: dict[str, Known] = {}
        self.running: list[str] = []
        self.waiting: list[str] = []
        self.refs = [0] * engine.config.num_blocks
        self.seen: set[Reason] = set()

    @property
    def free(self) -> int:
        return sum(count == 0 for count in self.refs)

    def blocks(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def drop(self, name: str) -> None:
        for block in self.known[name].table:
            self.refs[block] -= 1
        self.known[name].table = []

    def take(self, name: str, blocks: list[int]) -> None:
        self.known[name].table += blocks
        for block in blocks:
            self.refs[block] += 1

    def observe(self, record: StepRecord) -> None:
        """Follow one step, and raise AssertionError at the first number that is not what it should be."""
        for new in record.new_requests:
            length = len(new.prompt_token_ids)
            self.known[new.request_id] = Known(length, new.sampling_params["max_tokens"], length)
            self.waiting.append(new.request_id)
        decisions = list(record.decisions)
        while decisions and decisions[0].action in ("refuse", "abort"):
            self.before_the_step(decisions.pop(0), record)
        if all(self.known[name].finished_at is not None for name in self.running):
            for name in self.running:  # a static batch whose last request was aborted
                self.drop(name)
            self.running = []
        self.budget = self.config.max_num_batched_tokens
        choices = [d for d in decisions if d.action in ("admit", "prefill", "wait", "preempt", "hold")]
        afterwards = decisions[len(choices) :]
        assert choices == decisions[: len(choices)], "choices come before endings"
        started = list(self.running)
        order = list(record.scheduled)
        for name in order:
            if name in started:
                choices = self.before_growing(name, choices, record)
                self.take(name, record.blocks_allocated.get(name, []))
                choices = self.expect_chunk(name, choices, record)
                self.budget -= record.scheduled[name]
            else:
                choices = self.preemptions(choices, record)
                choices = self.skip_waits_of_running(choices, record)
                self.expect_admission(name, choices.pop(0), record)
        choices = self.preemptions(choices, record)
        choices = self.skip_waits_of_running(choices, record)
        for decision in choices:
            self.expect_wait(decision, record)
        assert self.free == record.num_free_blocks
        assert record.running == self.running
        assert record.num_waiting == len(self.waiting)
        self.after_the_forward(afterwards, record)

    def before_the_step(self, decision: Decision, record: StepRecord) -> None:
        self.seen.add(decision.reason)
        name = decision.request_id
        if decision.action == "refuse":
            assert decision.numbers == {"why": record.refused[name]}
            return
        known = self.known[name]
        assert decision.numbers == {"output": known.output, "computed": known.computed}
        self.drop(name)
        known.finished_at = record.step
        if name in self.running and self.config.batching != "static":
            self.running.remove(name)
        if name in self.waiting:
            self.waiting.remove(name)

    def before_growing(self, name: str, choices: list[Decision], record: StepRecord) -> list[Decision]:
        """Preemptions that made room for `name`."""
        while choices and choices[0].action == "preempt" and choices[0].numbers.get("winner") == name:
            self.expect_preemption(choices.pop(0), name, record)
        return choices

    def preemptions(self, choices: list[Decision], record: StepRecord) -> list[Decision]:
        """Those for a winner that in the end had to preempt itself."""
        while choices and choices[0].action == "preempt":
            decision = choices.pop(0)
            self.expect_preemption(decision, str(decision.numbers.get("winner", decision.request_id)), record)
        return choices

    def expect_preemption(self, decision: Decision, winner: str, record: StepRecord) -> None:
        self.seen.add(decision.reason)
        victim, known = decision.request_id, self.known[decision.request_id]
        target = self.known[winner]
        gap = min(target.length - target.computed, self.budget_of_policy())
        needs = self.blocks(target.computed + gap) - len(target.table)
        want = {"needs": needs, "free": self.free, "blocks": len(known.table), "computed": known.computed}
        if victim != winner:
            want["winner"] = winner
        assert decision.numbers == want, decision
        assert victim == self.running[-1], "the newest goes first"
        assert needs > self.free
        self.drop(victim)
        known.computed, known.preempted = 0, True
        self.running.pop()
        self.waiting.insert(0, victim)

    def budget_of_policy(self) -> int:
        return self.budget if self.config.batching == "chunked" else 10**9

    def expect_chunk(self, name: str, choices: list[Decision], record: StepRecord) -> list[Decision]:
        known = self.known[name]
        gap = known.length - known.computed
        if choices and choices[0].action == "hold":
            return choices
        if gap > 1 and self.config.batching == "chunked":
            decision = choices.pop(0)
            self.seen.add(decision.reason)
            ran = record.scheduled[name]
            assert decision.request_id == name
            assert decision.numbers == {"tokens": ran, "remaining": gap - ran, "budget": self.budget}
            assert ran == min(gap, self.budget)
        return choices

    def skip_waits_of_running(self, choices: list[Decision], record: StepRecord) -> list[Decision]:
        rest = []
        for decision in choices:
            if decision.action == "wait" and decision.request_id in self.running:
                self.seen.add(decision.reason)
                assert decision.reason is Reason.BUDGET_SPENT
                assert decision.numbers == {"limit": self.config.max_num_batched_tokens}
                assert self.budget == 0
            elif decision.action == "hold":
                self.seen.add(decision.reason)
                unfinished = sum(self.known[name].finished_at is None for name in self.running)
                assert decision.numbers == {"unfinished": unfinished}
                assert self.known[decision.request_id].finished_at is not None
            else:
                rest.append(decision)
        return rest

    def expect_admission(self, name: str, decision: Decision, record: StepRecord) -> None:
        self.seen.add(decision.reason)
        assert (decision.action, decision.request_id) == ("admit", name)
        assert self.waiting.pop(0) == name, "first come, first served"
        known, hit = self.known[name], record.prefix_hits.get(name, 0)
        assert decision.reason is (Reason.READMITTED if known.preempted else Reason.ADMITTED)
        table = list(record.block_tables[name])
        idle = sum(self.refs[block] == 0 for block in table[: hit // self.config.block_size])
        assert decision.numbers == {
            "tokens": record.scheduled[name],
            "todo": known.length - hit,
            "hit": hit,
            "needs": len(record.blocks_allocated[name]) + idle,
            "free": self.free,
        }
        known.computed = hit
        self.take(name, table)
        self.running.append(name)
        self.budget -= record.scheduled[name]

    def expect_wait(self, decision: Decision, record: StepRecord) -> None:
        self.seen.add(decision.reason)
        numbers, name = decision.numbers, decision.request_id
        assert (decision.action, name) == ("wait", self.waiting[0])
        match decision.reason:
            case Reason.BUDGET_SPENT:
                assert self.budget == 0
                assert numbers == {"limit": self.config.max_num_batched_tokens}
            case Reason.MAX_NUM_SEQS:
                limit = self.config.max_num_seqs
                assert numbers == {"running": len(self.running), "limit": limit}
                assert len(self.running) == limit
            case Reason.AFTER_PREEMPTION:
                assert numbers == {"preempted": len(record.preempted)}
                assert record.preempted
            case Reason.BATCH_RUNNING:
                unfinished = sum(self.known[other].finished_at is None for other in self.running)
                assert numbers == {"unfinished": unfinished}
            case Reason.NO_FREE_BLOCKS:
                assert numbers["free"] == self.free < numbers["needs"]
                known = self.known[name]
                most = known.prompt + known.max_tokens if self.config.batching == "static" else known.length
                assert numbers["needs"] <= self.blocks(most)
                if not self.config.prefix_caching and self.config.batching == "continuous":
                    assert numbers["needs"] == self.blocks(known.length)
            case _:
                raise AssertionError(f"no reason to wait: {decision}")

    def after_the_forward(self, decisions: list[Decision], record: StepRecord) -> None:
        for name, tokens in record.scheduled.items():
            self.known[name].computed += tokens
        for name in record.sampled:
            self.known[name].length += 1
        for decision in decisions:
            self.seen.add(decision.reason)
            known = self.known[decision.request_id]
            match decision.reason:
                case Reason.MAX_TOKENS:
                    want = {"output": known.output, "limit": known.max_tokens}
                    assert decision.numbers == want
                    assert known.output == known.max_tokens
                case Reason.MAX_MODEL_LEN:
                    assert decision.numbers == {"length": known.length, "limit": self.config.max_model_len}
                case Reason.POOL_END:
                    capacity = self.config.num_blocks * self.config.block_size
                    assert decision.numbers == {"length": known.length, "limit": capacity}
                    assert known.length == capacity + 1
                case Reason.STOP_TOKEN | Reason.EOS_TOKEN:
                    assert decision.numbers == {"token": record.sampled[decision.request_id]}
                case Reason.RETURNED:
                    assert decision.numbers == {"held": record.step - known.finished_at}
                case Reason.FAILED:
                    assert decision.numbers == {"error": record.errors[decision.request_id]}
                case _:
                    raise AssertionError(f"no ending: {decision}")
            if decision.action == "finish":
                known.finished_at = record.step
        if all(self.known[name].finished_at is not None for name in self.running):
            gone = list(self.running)
        else:
            gone = (
                []
                if self.config.batching == "static"
                else [name for name in self.running if self.known[name].finished_at is not None]
            )
        for name in gone:
            self.drop(name)
            self.running.remove(name)
