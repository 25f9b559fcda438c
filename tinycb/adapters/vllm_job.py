"""Runs workloads on vLLM, in the interpreter that has it: `python -m tinycb.adapters.vllm_job JOBS RESULTS`.

JOBS is a file of JSON, a list of jobs; RESULTS gets a JSON object a line as each is done:

    {"model": …, "arguments": {… of vllm.LLM …}, "trace": path or null, "chat": false, "final_only": false,
     "requests": [{"id": …, "prompt": text or "prompt_token_ids": [...] or "pieces": [[key, length], …],
                   "params": {…}, "step": 0, "time": 0.0}],
     "aborts": [{"id": …, "step": 3}]}

Requests are in the order in which they come: one is added before the engine's step of its number, once that
many seconds have gone by; an abort comes before the step of its number. final_only: vLLM makes a text of an
answer when it is whole, as its `generate` does, and not after every step. SIGINT ends the job that runs after
its step, and what was answered until then is its result. Engine and scheduler are in this process, so that
steps can be counted. Not for the long term: `vllm serve` with the recording scheduler is. Next: `vllm.py`.
"""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from tinycb.workloads.traffic import Piece

__all__ = ["main"]

SCHEDULER = "tinycb.adapters.vllm.RecordingScheduler"
_PARAMS = (
    *("temperature", "top_k", "top_p", "seed", "max_tokens", "min_tokens", "stop", "stop_token_ids"),
    *("ignore_eos", "logprobs"),
)


def main(jobs_path: str, results_path: str) -> int:
    """Run every job; the first that fails ends it, with one line under "error"."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_DISABLE_REQUEST_ID_RANDOMIZATION"] = "1"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    with open(jobs_path, encoding="utf-8") as file:
        jobs = json.load(file)
    with open(results_path, "w", encoding="utf-8") as results:
        for job in jobs:
            try:
                result = run_job(job)
            except (Exception, SystemExit) as error:
                result = {"error": _in_one_line(error)}
            except KeyboardInterrupt:
                result = {"outputs": [], "interrupted": True}
            results.write(json.dumps(result) + "\n")
            results.flush()
            if "error" in result:
                return 1
            if result["interrupted"]:
                return 130
    return 0


def run_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """One engine, one workload."""
    if job.get("trace"):
        os.environ["TINYCB_TRACE"] = job["trace"]
    from vllm import LLM

    arguments = dict(job["arguments"])
    if job.get("trace"):
        if arguments.get("scheduler_cls"):
            raise ValueError(
                f"scheduler_cls is {arguments['scheduler_cls']} already; to record one of your own, give the "
                "name of a class Mine(tinycb.adapters.recorder.Recorder, YourScheduler) in its place"
            )
        arguments["scheduler_cls"] = SCHEDULER
    llm = LLM(job["model"], **arguments)
    core = llm.llm_engine.engine_core
    try:
        if arguments.get("pipeline_parallel_size", 1) > 1 and arguments.get("enforce_eager"):
            llm.collective_rpc("execute_dummy_batch")  # makes what stages hand on, which eager start-up omits
        return _Serving(llm, job).run()
    finally:
        scheduler = core.engine_core.scheduler
        scheduler.shutdown()
        del llm, core, scheduler
        gc.collect()


class _Serving:
    """The loop: whoever is due is added, then a step."""

    def __init__(self, llm: Any, job: Mapping[str, Any]) -> None:
        self.llm, self.engine, self.job = llm, llm.llm_engine, job
        self.done: dict[str, dict[str, Any]] = {}
        self.partial: dict[str, Any] = {}
        self.interrupted = False

    def run(self) -> dict[str, Any]:
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            self._loop()
        finally:
            signal.signal(signal.SIGINT, before)
        outputs = [self.done[r["id"]] for r in self.job["requests"] if r["id"] in self.done]
        return {"outputs": outputs, "interrupted": self.interrupted}

    def _interrupt(self, *_: Any) -> None:
        self.interrupted = True

    def _loop(self) -> None:
        waiting, aborts = deque(self.job["requests"]), list(self.job.get("aborts", ()))
        start, began, step = time.monotonic(), time.time(), 0
        while waiting or self.engine.has_unfinished_requests():
            if self.interrupted:
                self._abort(list(self.partial))
                return
            now = time.monotonic() - start
            while waiting and waiting[0].get("step", 0) <= step and waiting[0].get("time", 0.0) <= now:
                request = waiting.popleft()
                self._add(request, began + request["time"] if "time" in request else None)
            self._abort([abort["id"] for abort in aborts if abort["step"] == step])
            if self.engine.has_unfinished_requests():
                for output in self.engine.step():
                    self.partial[output.request_id] = output
                    if output.finished:
                        self.done[output.request_id] = _output(self.partial.pop(output.request_id))
            elif waiting:
                time.sleep(0.001)
            step += 1

    def _add(self, request: Mapping[str, Any], arrival_time: float | None) -> None:
        name = request["id"]
        try:
            prompt = _prompt(self.llm, request, self.job.get("chat"))
            params = _params(request, bool(self.job.get("final_only")))
            self.engine.add_request(name, prompt, params, arrival_time=arrival_time)
        except Exception as error:  # of one request; what vLLM raises for it differs between versions
            self.done[name] = {"id": name, "error": _in_one_line(error)}
        else:
            self.partial[name] = None

    def _abort(self, names: list[str]) -> None:
        if names:
            self.engine.abort_request(names)
        for name in names:
            last = self.partial.pop(name, None)
            if last is None:
                self.done[name] = {"id": name, "prompt_token_ids": [], "token_ids": [], "text": ""}
            else:
                self.done[name] = _output(last)
            self.done[name]["finish_reason"] = "abort"


def _prompt(llm: Any, request: Mapping[str, Any], chat: bool | None) -> Any:
    if "prompt_token_ids" in request:
        return {"prompt_token_ids": request["prompt_token_ids"]}
    if "pieces" in request:
        vocab_size = llm.llm_engine.model_config.get_vocab_size()
        pieces = [Piece(key, length).tokens(vocab_size) for key, length in request["pieces"]]
        return {"prompt_token_ids": [token for piece in pieces for token in piece]}
    if not chat:
        return request["prompt"]
    message = [{"role": "user", "content": request["prompt"]}]
    text = llm.get_tokenizer().apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return {"prompt_token_ids": llm.get_tokenizer().encode(text, add_special_tokens=False)}


def _params(request: Mapping[str, Any], final_only: bool) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    values = {name: request["params"][name] for name in _PARAMS if name in request["params"]}
    for name in ("stop", "stop_token_ids"):
        if name in values:
            values[name] = list(values[name])
    if final_only:
        values["output_kind"] = RequestOutputKind.FINAL_ONLY
    return SamplingParams(**values)


def _output(output: Any) -> dict[str, Any]:
    best = output.outputs[0]
    return {
        "id": output.request_id,
        "prompt_token_ids": list(output.prompt_token_ids or ()),
        "token_ids": list(best.token_ids),
        "text": best.text,
        "finish_reason": str(best.finish_reason),
    }


def _in_one_line(error: BaseException) -> str:
    """The error's words, without what pydantic and vLLM wrap around them; its type where that says more."""
    kind = type(error).__name__
    problems = getattr(error, "errors", None)
    if kind == "ValidationError" and callable(problems):
        text = "; ".join(str(problem.get("msg", problem)) for problem in problems())
    else:
        text = str(error)
    text = re.sub(r" \(parameter=.*\)$", "", " ".join(text.replace("Value error, ", "").split()))[:600]
    if not text or not kind.endswith(("ValueError", "ValidationError")):
        return f"{kind}: {text}" if text else kind
    return text


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
