"""A stand-in for vLLM's v1 scheduler: the attributes a recorder looks at, and tinycb's own policy inside."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

from tinycb import EngineConfig, Request, SamplingParams
from tinycb.scheduling import BlockPool, ChunkedScheduler

__all__ = ["FakeRequest", "FakeScheduler", "fake_config"]


def fake_config(**changed: Any) -> EngineConfig:
    values: dict[str, Any] = {
        "block_size": 4,
        "num_blocks": 8,
        "max_num_batched_tokens": 16,
        "max_num_seqs": 4,
        "max_model_len": 64,
    }
    return EngineConfig(**(values | changed))


class FakeRequest:
    """As vLLM's: the counts that are read, and our own request underneath."""

    def __init__(self, name: str, prompt: list[int], max_tokens: int, stop_token_ids: tuple[int, ...] = ()):
        self.request_id, self.prompt_token_ids, self.max_tokens = name, prompt, max_tokens
        self.arrival_time = time.time()
        self.sampling_params = SimpleNamespace(
            temperature=0.0,
            top_k=0,
            top_p=1.0,
            seed=None,
            min_tokens=0,
            logprobs=None,
            ignore_eos=True,
            stop_token_ids=list(stop_token_ids),
        )
        params = SamplingParams(max_tokens=max_tokens, stop_token_ids=stop_token_ids, ignore_eos=True)
        self.own = Request(name, prompt, params)
        self.num_output_placeholders = 0

    num_computed_tokens = property(lambda self: self.own.num_computed_tokens)
    num_tokens_with_spec = property(lambda self: self.own.num_tokens)
    num_output_tokens = property(lambda self: self.own.num_output_tokens)


class Queue(deque):
    def peek_request(self) -> Any:
        return self[0]


class Policy(ChunkedScheduler):
    """Tells the fake what vLLM's scheduler would call of itself."""

    outer: FakeScheduler

    def _preempt(self, victim: Any, winner: Any, needs: int, output: Any) -> None:
        self.outer._preempt_request(self.outer.requests[victim.request_id], 0.0)
        super()._preempt(victim, winner, needs, output)

    def admit(self, request: Any, *rest: Any, **settings: Any) -> bool:
        self.outer._get_local_prefix_cache_hit(self.outer.requests[request.request_id], None)
        return super().admit(request, *rest, **settings)


class FakeScheduler:
    """`schedule`, then `update_from_output` with a token for each request that is to get one."""

    def __init__(self, config: EngineConfig, **changed: Any) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks, config.block_size, config.prefix_caching)
        self.policy = Policy(config, self.pool)
        self.policy.outer = self
        self.requests: dict[str, FakeRequest] = {}
        self.block_size = config.block_size
        self.max_num_scheduled_tokens = config.max_num_batched_tokens
        self.max_num_active_reqs = config.max_num_seqs
        self.max_model_len = config.max_model_len
        self.scheduler_reserve_full_isl = config.reserve_full_prompt
        self.kv_holding_waiting, self.deferred_waiting = Queue(), set()
        self.num_spec_tokens, self.num_sampled_tokens_per_step = 0, 1
        self.is_encoder_decoder, self.connector, self.lora_config = False, None, None
        self.need_mamba_block_aligned_split = False
        self.kv_cache_config = SimpleNamespace(kv_cache_groups=[None])
        self.cache_config = SimpleNamespace(
            enable_prefix_caching=config.prefix_caching,
            num_gpu_blocks=config.num_blocks + 1,
            cache_dtype="auto",
        )
        self.scheduler_config = SimpleNamespace(
            policy="fcfs", long_prefill_token_threshold=0, enable_chunked_prefill=True, async_scheduling=False
        )
        self.parallel_config = SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1)
        model = SimpleNamespace(
            model="fake", dtype="torch.float32", hf_config=SimpleNamespace(eos_token_id=2)
        )
        self.vllm_config = SimpleNamespace(model_config=model)
        self.kv_cache_manager = SimpleNamespace(
            block_pool=SimpleNamespace(free_block_queue=_FreeQueue(self.pool)),
            get_block_ids=lambda name: ([n + 1 for n in self.requests[name].own.block_table],),
        )
        self.num_shutdowns = 0
        for name, value in changed.items():
            setattr(self, name, value)

    waiting = property(lambda self: Queue(self.requests[r.request_id] for r in self.policy.waiting))
    running = property(lambda self: [self.requests[r.request_id] for r in self.policy.running])

    def add_request(self, request: FakeRequest) -> None:
        self.requests[request.request_id] = request
        self.policy.add(request.own)

    def schedule(self) -> Any:
        output = self.policy.schedule()
        admitted = {request.request_id for request in output.admitted}
        others = [name for name in output.scheduled if name not in admitted]
        new = [
            SimpleNamespace(
                req_id=name,
                block_ids=([n + 1 for n in output.block_tables[name]],),
                num_computed_tokens=output.num_computed[name],
            )
            for name in output.scheduled
            if name in admitted
        ]
        taken = [output.blocks_allocated.get(name) for name in others]
        cached = SimpleNamespace(
            req_ids=others,
            resumed_req_ids=set(),
            new_block_ids=[blocks and ([n + 1 for n in blocks],) for blocks in taken],
            num_computed_tokens=[output.num_computed[name] for name in others],
        )
        for request in output.requests:
            request.num_computed_tokens += output.scheduled[request.request_id]
        return SimpleNamespace(
            num_scheduled_tokens=output.scheduled,
            scheduled_new_reqs=new,
            scheduled_cached_reqs=cached,
            own=output,
        )

    def update_from_output(self, scheduler_output: Any, tokens: dict[str, int]) -> Any:
        answers = []
        for request in scheduler_output.own.sampling:
            token = tokens[request.request_id]
            request.token_ids.append(token)
            stopped = token in request.sampling_params.stop_token_ids
            full = request.num_output_tokens >= request.sampling_params.max_tokens
            if stopped or full:
                request.finish_reason = request.status = "finished"  # any that is not running
                self.policy.running.remove(request)
                self.policy._free(request)
                del self.requests[request.request_id]
            reason = "stop" if stopped else "length" if full else None
            answers.append(
                SimpleNamespace(
                    request_id=request.request_id,
                    new_token_ids=[token],
                    finish_reason=reason,
                    stop_reason=token if stopped else None,
                )
            )
        return {0: SimpleNamespace(outputs=answers)}

    def finish_requests(self, request_ids: Any, finished_status: Any) -> list[FakeRequest]:
        gone = [self.requests.pop(name) for name in request_ids if name in self.requests]
        for request in gone:
            self.policy.remove(request.own)
        return gone

    def _preempt_request(self, request: Any, timestamp: float, *rest: Any) -> None:
        """vLLM frees the victim's blocks here; the policy does it afterwards."""

    def _get_local_prefix_cache_hit(self, request: FakeRequest, longest: int | None) -> Any:
        """With a second argument, as from vLLM 0.33 on."""
        hits = self.pool.find_prefix(request.own)
        return SimpleNamespace(blocks=[[SimpleNamespace(block_id=n + 1) for n in hits]]), len(hits)

    def shutdown(self) -> None:
        self.num_shutdowns += 1


class _FreeQueue:
    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool

    num_free_blocks = property(lambda self: self.pool.num_free)
