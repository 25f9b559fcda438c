"""Every decision's numbers, recomputed from the records alone; and every reason is seen."""

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.harness import POLICIES, finish, request, scripted_engine
from tests.engine.shadow import Shadow
from tinycb.scheduling import Reason

WORKLOADS = st.lists(
    st.tuples(
        st.integers(0, 6),  # steps before it arrives
        st.integers(1, 22),  # prompt
        st.integers(1, 9),  # max_tokens
        st.sampled_from("PPQ"),  # which prefix its prompt begins with
        st.integers(0, 9),  # 0: aborted two steps later
    ),
    min_size=1,
    max_size=9,
)
CONFIGS = st.fixed_dictionaries(
    {
        "batching": st.sampled_from(POLICIES),
        "block_size": st.sampled_from([1, 2, 4]),
        "num_blocks": st.integers(6, 14),
        "max_num_batched_tokens": st.sampled_from([1, 3, 8, 64]),
        "max_num_seqs": st.integers(1, 4),
        "prefix_caching": st.booleans(),
        "reserve_full_prompt": st.booleans(),
        "max_model_len": st.sampled_from([20, 200]),
    }
)
PREFIX = {"P": [7] * 30, "Q": list(range(30))}


def serve(config, workload) -> Shadow:
    """Run a workload beside its shadow, which raises where a number is not what it should be."""
    engine = scripted_engine(**config)
    shadow = Shadow(engine)
    doomed: dict[int, str] = {}
    for number, (gap, prompt, max_tokens, prefix, abort) in enumerate(workload):
        for _ in range(gap):
            shadow.observe(engine.step())
            if engine.step_count in doomed:
                engine.abort(doomed.pop(engine.step_count))
        name = f"q{number}"
        tokens = [*PREFIX[prefix][: prompt - 1], number]
        try:
            engine.add_request(request(name, tokens, max_tokens))
        except ValueError:
            continue
        if abort == 0:
            doomed[engine.step_count + 2] = name
    finish(engine, observe=shadow.observe)
    return shadow


@given(CONFIGS, WORKLOADS)
def test_every_number_of_every_decision_follows_from_the_records(config, workload):
    serve(config, workload)


def test_every_reason_that_scripted_runs_can_bring_is_seen():
    seen = set()
    crowd = [(0, 9, 6, "P", 9), (0, 9, 9, "P", 9), (0, 21, 4, "Q", 9), (2, 3, 9, "Q", 0), (4, 22, 40, "Q", 9)]
    roomy = {"block_size": 2, "max_model_len": 200}
    for batching in POLICIES:
        for blocks, seqs, budget in ((14, 2, 3), (14, 4, 8), (40, 4, 8), (9, 4, 64)):
            config = {"num_blocks": blocks, "max_num_seqs": seqs, "max_num_batched_tokens": budget}
            seen |= serve({"batching": batching, **roomy, **config}, crowd).seen
    seen |= serve({"batching": "continuous", "num_blocks": 6}, [(0, 5, 9, "P", 9), (0, 5, 9, "Q", 9)]).seen
    seen |= serve({"batching": "chunked", "num_blocks": 20, "max_model_len": 12}, crowd).seen
    seen |= serve({"batching": "chunked", "num_blocks": 3, "reserve_full_prompt": False}, crowd).seen
    not_scripted = {Reason.EOS_TOKEN, Reason.STOP_TOKEN, Reason.STOP_STRING, Reason.FAILED}
    not_ours = {Reason.NOT_STATED, Reason.IN_FLIGHT}  # of what another engine did
    assert set(Reason) - seen == not_scripted | not_ours
