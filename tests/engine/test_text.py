"""Text in and out: streams, stop strings, minimum lengths, what ends a request; on a scripted byte model."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.harness import finish
from tinycb import Engine, EngineConfig, Request, SamplingParams
from tinycb.executors import ScriptedExecutor
from tinycb.output_text import OutputText
from tinycb.tokenizer import ByteTokenizer


class Says(ScriptedExecutor):
    """Answers every prompt with the same text, one byte a token, then end-of-sequence for ever."""

    def __init__(self, text: str) -> None:
        super().__init__({}, eos_token_ids=[0], vocab_size=256)
        self.script = [*text.encode(), *[0] * 500]

    def check_request(self, request: Request) -> None:
        self.scripts[request.request_id] = self.script


def engine_that_says(text: str, **config) -> Engine:
    return Engine(EngineConfig(check=True, num_blocks=64, **config), Says(text), ByteTokenizer())


def answer(text: str, **params):
    engine = engine_that_says(text)
    return engine.generate("hi", SamplingParams(max_tokens=100, **params))[0]


def test_the_end_of_sequence_token_is_in_the_ids_and_not_in_the_text():
    output = answer("bye")
    assert (output.text, output.token_ids[-1], output.finish_reason) == ("bye", 0, "stop")


def test_ignore_eos_goes_on_to_max_tokens():
    output = engine_that_says("bye").generate("hi", SamplingParams(max_tokens=9, ignore_eos=True))[0]
    assert (len(output.token_ids), output.finish_reason) == (9, "length")


def test_a_stop_string_across_tokens_ends_the_text_before_it():
    output = answer("one END two", stop="END")
    assert (output.text, output.finish_reason) == ("one ", "stop")
    assert bytes(output.token_ids) == b"one END"


def test_the_stop_string_that_is_complete_first_wins_however_tokens_cut_the_text():
    assert answer("abcdef", stop=["ef", "cd"]).text == "ab"
    assert answer("x--y", stop=["--", "-"]).text == "x"
    assert answer("abcd", stop=["bcd", "c"]).text == "ab"

    class Coarse(ByteTokenizer):
        """Gives out its text in one piece, as one token of many characters would."""

        def stream(self):
            return Lump()

    class Lump:
        def push(self, token_id: int) -> str:
            return "abcd" if token_id == ord("d") else ""

        def flush(self) -> str:
            return ""

    text = OutputText(Coarse(), ["bcd", "c"])
    assert [text.push(byte) for byte in b"abcd"][-1] == "c"
    assert text.text == "ab"


def test_a_stop_id_ends_the_request_and_is_not_in_the_text():
    output = answer("abc.def", stop_token_ids=[ord(".")])
    assert (output.text, output.token_ids[-1], output.finish_reason) == ("abc", ord("."), "stop")


def test_an_end_of_sequence_token_counts_from_the_min_tokens_th_on():
    output = engine_that_says("").generate("hi", SamplingParams(max_tokens=9, min_tokens=3))[0]
    assert output.token_ids == [0, 0, 0]


def test_before_min_tokens_no_stop_string_is_seen():
    assert answer("aXbXc", stop="X", min_tokens=3).text == "aXb"


def test_a_stop_string_that_began_before_min_tokens_does_not_count():
    assert answer("abcd", stop="bc", min_tokens=2).text == "abcd"


def test_max_tokens_and_a_stop_string_on_the_same_token_is_a_stop():
    engine = engine_that_says("abcd")
    output = engine.generate("hi", SamplingParams(max_tokens=3, stop="c"))[0]
    assert (output.text, output.finish_reason) == ("ab", "stop")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12))
def test_a_stream_gives_whole_characters_and_together_the_text(text):
    pieces = list(engine_that_says(text).stream("hi", SamplingParams(max_tokens=100)))
    assert "".join(pieces) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces if piece not in text)
    assert [piece.finish_reason for piece in pieces][-1] == "stop"
    assert all(piece.finish_reason is None for piece in pieces[:-1])
    assert bytes(t for piece in pieces for t in piece.token_ids if t) == text.encode()


@given(
    st.text(st.sampled_from("abé🙂"), max_size=14),
    st.lists(st.text(st.sampled_from("abé🙂"), min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_a_stream_never_shows_any_of_a_stop_string(text, stop):
    first = min(((at + len(s), at) for s in stop if (at := text.find(s)) >= 0), default=None)
    want = text if first is None else text[: first[1]]
    pieces = list(engine_that_says(text).stream("hi", SamplingParams(max_tokens=100, stop=stop)))
    assert "".join(pieces) == want


def test_text_is_shown_as_soon_as_it_cannot_be_part_of_a_stop_string():
    text = OutputText(ByteTokenizer(), ["<end>"])
    shown = []
    for byte in b"a<b<en.":
        text.push(byte)
        shown.append(text.certain())
    assert shown == ["a", "a", "a<b", "a<b", "a<b", "a<b", "a<b<en."]


def test_an_unfinished_character_at_the_end_is_shown_as_such():
    engine = engine_that_says("é")
    output = engine.generate("hi", SamplingParams(max_tokens=1))[0]
    assert output.text == "\N{REPLACEMENT CHARACTER}"


def test_leaving_a_stream_early_aborts_its_request_alone():
    engine = engine_that_says("a long story")
    other = Request("other", [1, 2], SamplingParams(max_tokens=3))
    engine.add_request(other)
    for delta in engine.stream("hi", SamplingParams(max_tokens=50)):
        assert delta == "a"
        break
    finish(engine)
    assert list(engine.outputs) == ["other"]


def test_many_tasks_stream_side_by_side_and_share_the_steps():
    engine = engine_that_says("together")

    async def read() -> str:
        return "".join([delta async for delta in engine.astream("hi", SamplingParams(max_tokens=50))])

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(read() for _ in range(5)))

    assert asyncio.run(all_of_them()) == ["together"] * 5
    assert engine.step_count <= len("together") + 4
    assert not engine.has_unfinished_requests()


def test_a_cancelled_task_aborts_its_request():
    engine = engine_that_says("for ever and ever")

    async def cancelled() -> None:
        async def read() -> None:
            async for _ in engine.astream("hi", SamplingParams(max_tokens=500, ignore_eos=True)):
                await asyncio.sleep(0)

        task = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert not engine.has_unfinished_requests()
    assert engine.pool.num_free == engine.pool.num_blocks


def test_generate_checks_every_prompt_first_and_names_the_bad_one():
    engine = engine_that_says("x")
    with pytest.raises(ValueError, match=r"prompts\[1\]: prompt_token_ids is empty"):
        engine.generate(["fine", [], "fine"])
    with pytest.raises(ValueError, match=r"prompts\[2\]: .*300.*256"):
        engine.generate(["fine", [1], [300]])
    assert engine.step_count == 0
    with pytest.raises(ValueError, match="sampling_params must be one, or one a prompt: 2, not 1"):
        engine.generate(["a", "b"], [SamplingParams()])


def test_generate_takes_texts_and_ids_and_a_parameter_set_for_each():
    engine = engine_that_says("abcdef")
    params = [SamplingParams(max_tokens=n) for n in (1, 2, 3)]
    outputs = engine.generate(["text", [1, 2, 3], (4, 5)], params)
    assert [output.text for output in outputs] == ["a", "ab", "abc"]
    assert outputs[1].prompt_token_ids == [1, 2, 3]
    assert engine.outputs == {}


def test_a_failing_forward_leaves_generate_with_a_clean_engine():
    class Broken(Says):
        def execute(self, step):
            raise RuntimeError("no device")

    engine = Engine(EngineConfig(num_blocks=8), Broken("x"), ByteTokenizer())
    with pytest.raises(RuntimeError, match="no device"):
        engine.generate(["a", "b"])
    assert not engine.has_unfinished_requests()
    assert engine.pool.num_free == 8


def test_text_without_a_tokenizer_is_a_clear_error():
    engine = Engine(EngineConfig(num_blocks=8), Says("x"))
    with pytest.raises(ValueError, match="needs a tokenizer"):
        engine.generate("text")
    assert [d.token_ids for d in engine.stream([1, 2], SamplingParams(max_tokens=2))] == [[120], [0]]
