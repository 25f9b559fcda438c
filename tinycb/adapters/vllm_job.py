"""Runs workloads on vLLM, in the interpreter that has it: `python -m tinycb.adapters.vllm_job JOBS RESULTS`.

JOBS is a file of JSON, a list of jobs; RESULTS gets a JSON object a line as each is done:

    {"model": …, "arguments": {… of vllm.LLM …}, "trace": path or null, "chat": false,
     "requests": [{"id": …, "prompt": text or "prompt_token_ids": [...], "params": {…},
                   "step": 0, "time": 0.0}],
     "aborts": [{"id": …, "step": 3}]}

A request comes before the engine's step of that number, or when that many seconds have gone by; an abort
before the step of its number. Engine and scheduler are in this process, so that steps can be counted.
Not for the long term: `vllm serve` with the recording scheduler is. Next: `vllm.py`.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

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
                kind = type(error).__name__
                result = {"error": f"{kind}: {_innermost(error)}"}
            results.write(json.dumps(result) + "\n")
            results.flush()
            if "error" in result:
                return 1
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
        outputs, seconds = _serve(llm, job)
    finally:
        scheduler = core.engine_core.scheduler
        scheduler.shutdown()
        del llm, core, scheduler
        gc.collect()
    return {"outputs": outputs, "seconds": seconds}


def _serve(llm: Any, job: Mapping[str, Any]) -> tuple[list[dict[str, Any]], float]:
    engine = llm.llm_engine
    waiting = sorted(job["requests"], key=lambda r: (r.get("time", 0.0), r.get("step", 0)))
    aborts = list(job.get("aborts", ()))
    done: dict[str, Any] = {}
    start, step = time.monotonic(), 0
    while waiting or engine.has_unfinished_requests():
        now = time.monotonic() - start
        due = [r for r in waiting if r.get("step", 0) <= step and r.get("time", 0.0) <= now]
        for request in due:
            waiting.remove(request)
            try:
                engine.add_request(request["id"], _prompt(llm, request, job.get("chat")), _params(request))
            except (ValueError, TypeError) as error:
                done[request["id"]] = {"id": request["id"], "error": _innermost(error)}
        given_up = [a["id"] for a in aborts if a["step"] == step]
        if given_up:
            engine.abort_request(given_up)
            for name in given_up:
                done[name] = {"id": name, "token_ids": [], "text": "", "finish_reason": "abort"}
        if engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    done[output.request_id] = _output(output)
        elif waiting:
            time.sleep(0.001)
        step += 1
    return [done[r["id"]] for r in job["requests"] if r["id"] in done], time.monotonic() - start


def _prompt(llm: Any, request: Mapping[str, Any], chat: bool | None) -> Any:
    if "prompt_token_ids" in request:
        return {"prompt_token_ids": request["prompt_token_ids"]}
    if not chat:
        return request["prompt"]
    message = [{"role": "user", "content": request["prompt"]}]
    text = llm.get_tokenizer().apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return {"prompt_token_ids": llm.get_tokenizer().encode(text, add_special_tokens=False)}


def _params(request: Mapping[str, Any]) -> Any:
    from vllm import SamplingParams

    values = {name: request["params"][name] for name in _PARAMS if name in request["params"]}
    for name in ("stop", "stop_token_ids"):
        if name in values:
            values[name] = list(values[name])
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


def _innermost(error: BaseException) -> str:
    lines: Sequence[str] = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:600] or type(error).__name__


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
