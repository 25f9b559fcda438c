"""Streaming gives what decoding all at once gives, whole characters only, with every kind of vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from tinycb.model.checkpoint import LoadedModel
from tinycb.tokenizer import ByteTokenizer, Tokenizer

WORDS = ["<s>", "</s>", "▁", "▁the", "▁cat", "s", "é", "▁ö", "…", "😀", "a", "b", ",", "▁▁", "�"]


def with_byte_fallback() -> Tokenizer:
    """A vocabulary as Llama 2 has it: ▁ for a space, a byte where there is no token, a leading space cut."""
    vocab = {word: i for i, word in enumerate([*WORDS, *(f"<0x{b:02X}>" for b in range(256))])}
    backend = Backend(models.BPE(vocab, [], byte_fallback=True, unk_token="</s>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return Tokenizer(backend)


def byte_level() -> Tokenizer:
    """A vocabulary as GPT-2 has it: a token is a string of bytes, whole characters or not."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*letters, "Ġthe", "ðŁ", "ĺĢ", "Ã©x"]
    backend = Backend(models.BPE({t: i for i, t in enumerate(tokens)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|end|>", special=True)])
    backend.add_tokens([AddedToken("<tool>", special=False)])
    return Tokenizer(backend)


VOCABULARIES = {"fallback": with_byte_fallback(), "byte level": byte_level(), "bytes": ByteTokenizer()}


def stream(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    decoder = tokenizer.stream()
    return [*map(decoder.push, ids), decoder.flush()]


@pytest.mark.parametrize("kind", VOCABULARIES)
@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(0, 280), max_size=30))
def test_pieces_of_random_ids_add_up(kind: str, ids: list[int]) -> None:
    tokenizer = VOCABULARIES[kind]
    assert "".join(stream(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", VOCABULARIES)
@settings(max_examples=300, deadline=None)
@given(text=st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("😀é…the cats ")), max_size=20))
def test_pieces_of_text_add_up_and_hold_whole_characters(kind: str, text: str) -> None:
    tokenizer = VOCABULARIES[kind]
    ids = tokenizer.encode(text)
    pieces = stream(tokenizer, ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_text_comes_out_as_soon_as_it_is_certain() -> None:
    decoder = ByteTokenizer().stream()
    assert [decoder.push(b) for b in "aé😀".encode()] == ["a", "", "é", "", "", "", "😀"]
    decoder.push(0xE2)
    assert decoder.flush() == "\ufffd"
    assert decoder.flush() == ""


def test_special_tokens_are_silent_and_a_leading_space_is_kept_in_the_middle() -> None:
    tokenizer = VOCABULARIES["fallback"]
    the, cat, bos = WORDS.index("▁the"), WORDS.index("▁cat"), 0
    assert stream(tokenizer, [bos, the, bos, cat]) == ["", "the", "", " cat", ""]
    assert [tokenizer.token_text(i) for i in (the, bos, len(WORDS) + 10, 99999)] == [
        " the",
        "<s>",
        "\n",
        "<99999>",
    ]


def test_byte_tokenizer() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("hé") == [0x68, 0xC3, 0xA9]
    assert tokenizer.decode([0x68, 0xC3, 0xA9, 0]) == "hé"
    assert [tokenizer.token_text(i) for i in (97, 0, 200)] == ["a", "<0x00>", "<0xC8>"]
    with pytest.raises(ValueError, match="no chat template"):
        tokenizer.chat("hi")


def test_a_folder_gives_its_template_and_its_own_beginning_of_sequence(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    backend = with_byte_fallback()._backend
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    backend.save(str(tmp_path / "tokenizer.json"))
    settings_file = tmp_path / "tokenizer_config.json"
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    settings_file.write_text(json.dumps({"bos_token": {"content": "<s>"}, "chat_template": template}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode("a")[0] == 0
    assert tokenizer.encode("a").count(0) == 1
    assert tokenizer.chat("a").count(0) == 1  # the template's own, not one more
    settings_file.write_text(json.dumps({"chat_template": "{{ raise_exception('only one turn') }}"}))
    refusing = Tokenizer.from_folder(tmp_path)
    assert refusing is not None
    with pytest.raises(ValueError, match="only one turn"):
        refusing.chat("a")
    assert Tokenizer.from_folder(tmp_path / "nowhere") is None


@pytest.mark.smollm2
def test_smollm2(smollm2: LoadedModel) -> None:
    tokenizer = smollm2.tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("hello world") == [28120, 905]
    chat = tokenizer.chat("Hi")
    assert tokenizer._backend.decode(chat, skip_special_tokens=False).endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat[0] == 1
    assert tokenizer.chat([{"role": "user", "content": "Hi"}]) == chat

    @settings(max_examples=150, deadline=None)
    @given(
        ids=st.lists(
            st.integers(0, 49151) | st.sampled_from([0, 1, 2, 239, 251, 245, 8384, 98]), max_size=40
        ),
        text=st.text(max_size=20),
    )
    def add_up(ids: list[int], text: str) -> None:
        for some in (ids, tokenizer.encode(text)):
            pieces = stream(tokenizer, some)
            assert "".join(pieces) == tokenizer.decode(some)

    add_up()
