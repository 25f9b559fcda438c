"""Text to token ids and back, and back one token at a time.

`Tokenizer` wraps a `tokenizer.json`; `ByteTokenizer` is the vocabulary of `tiny-random`, where an id is a
byte. Both decode as a stream: a piece of text comes out once no later token can change it.

Needs no torch, and transformers only to render a chat template. Knows nothing of stop strings (`engine.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ByteTokenizer", "TokenStream", "Tokenizer"]

Messages = Sequence[Mapping[str, str]]
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # how a vocabulary with byte fallback spells a byte
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Tokenizer:
    """A `tokenizers.Tokenizer`, with a chat template if the model has one."""

    def __init__(
        self,
        backend: Any,
        *,
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self.chat_template = chat_template
        self.special_tokens = dict(special_tokens or {})  # what a template may name: bos_token, eos_token, …
        self._special_ids: frozenset[int] = frozenset()
        if backend is not None:
            added = backend.get_added_tokens_decoder()
            self._special_ids = frozenset(i for i, token in added.items() if token.special)

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer | None:
        """Read `tokenizer.json`, and the chat template beside it; None where there is no tokenizer.json.

        Raises ValueError if the file cannot be read.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            return None
        from tokenizers import Tokenizer as Backend

        try:
            backend = Backend.from_file(str(path))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"{path} cannot be read: {error}") from None
        backend.no_truncation()
        backend.no_padding()
        settings = _json(folder / "tokenizer_config.json")
        template = settings.get("chat_template")
        if isinstance(template, list):  # several named ones
            try:
                named = {t["name"]: t["template"] for t in template}
            except (TypeError, KeyError):
                raise ValueError(f"{folder / 'tokenizer_config.json'}: chat_template is damaged") from None
            template = named.get("default", next(iter(named.values()), None))
        if (folder / "chat_template.jinja").is_file():
            template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
        tokens = {
            name: text
            for name, value in settings.items()
            if name.endswith("_token")
            and isinstance(text := value.get("content") if isinstance(value, dict) else value, str)
        }
        if template is not None and not isinstance(template, str):
            raise ValueError(f"{folder / 'tokenizer_config.json'}: chat_template is no text")
        return cls(backend, chat_template=template, special_tokens=tokens)

    def encode(self, text: str) -> list[int]:
        """Token ids, with a beginning-of-sequence id only if the model's own tokenizer adds one."""
        return list(self._backend.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text, without special tokens. Bytes that are no UTF-8 come out as U+FFFD."""
        return str(self._backend.decode(list(token_ids), skip_special_tokens=True))

    def is_silent(self, token_id: int) -> bool:
        """Whether `decode` drops the token: special ones, and ids the vocabulary does not have."""
        return token_id in self._special_ids or self._backend.id_to_token(token_id) is None

    def token_text(self, token_id: int) -> str:
        """One token for display: its text in the middle of a sentence, or its own name if it has none."""
        name = self._backend.id_to_token(token_id)
        if name is None:
            return f"<{token_id}>"
        once, twice = (self._backend.decode([token_id] * n, skip_special_tokens=False) for n in (1, 2))
        text = twice[len(once) :]  # a first token may lose its leading space
        return name if _UNKNOWN in text or not text else str(text)

    def ends_inside_character(self, token_id: int) -> bool:
        """Whether text up to this token may still change: a byte token's run decodes as a whole."""
        return _BYTE_TOKEN.fullmatch(self._backend.id_to_token(token_id) or "") is not None

    def chat(self, messages: str | Messages) -> list[int]:
        """Ids of a conversation, up to where the assistant speaks. A string is one user message.

        Raises ValueError if the model has no chat template, or the template refuses the messages.
        """
        if self.chat_template is None:
            raise ValueError("this model has no chat template; give a plain prompt instead")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        text = _render(self.chat_template, messages, self.special_tokens)
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def stream(self) -> TokenStream:
        """A decoder that is fed one token at a time."""
        return TokenStream(self)


class ByteTokenizer(Tokenizer):
    """Ids are bytes; 0 ends the text and is not shown."""

    def __init__(self) -> None:
        super().__init__(None)
        self._special_ids = frozenset({0})

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if 0 < i < 256).decode("utf-8", "replace")

    def is_silent(self, token_id: int) -> bool:
        return not 0 < token_id < 256

    def token_text(self, token_id: int) -> str:
        printable = 32 <= token_id < 127 or token_id in (9, 10)
        return chr(token_id) if printable else f"<0x{token_id:02X}>"

    def ends_inside_character(self, token_id: int) -> bool:
        return False


class TokenStream:
    """Text of a growing sequence: the pieces, `flush` last, are `decode` of all ids.

    A window of two pieces is decoded at each push: the last one given out, as context, and what came since.

        ids      … │ given out last │ new … │           piece = decode(both) minus decode(the first)
                   ▲ _start         ▲ _done

    While the text ends in U+FFFD, or in a byte of a run, a later token may still change it, and it waits.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._done = 0  # ids in the window whose text is out
        self._context = ""  # their text

    def push(self, token_id: int) -> str:
        """Add a token; return the text that is now certain, often "" in the middle of a character."""
        if self._tokenizer.is_silent(token_id):
            return ""
        self._ids.append(token_id)
        if self._tokenizer.ends_inside_character(token_id):
            return ""
        text = self._tokenizer.decode(self._ids)
        if text.endswith(_UNKNOWN) or len(text) <= len(self._context):
            return ""
        return self._give(text)

    def flush(self) -> str:
        """The rest: whatever waited for a token that did not come."""
        return self._give(self._tokenizer.decode(self._ids))

    def _give(self, text: str) -> str:
        piece = text[len(self._context) :]
        self._ids = self._ids[self._done :]
        self._done = len(self._ids)
        self._context = self._tokenizer.decode(self._ids)
        return piece


def _render(template: str, messages: Messages, special_tokens: Mapping[str, str]) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    settings: dict[str, Any] = {"chat_template": template, "add_generation_prompt": True, **special_tokens}
    try:
        rendered = render_jinja_template(conversations=[[dict(m) for m in messages]], **settings)
    except Exception as error:  # a template may raise anything, and says why in words
        raise ValueError(f"the chat template refused the messages: {error}") from None
    return str(rendered[0][0])


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a JSON object: {error}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
