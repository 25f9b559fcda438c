"""Puts the text of tokens and prompts into a trace that has ids only, because a scheduler sees no text.

Next: `tinycb.tracing`, which shows them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tinycb.tracing.reader import TraceReader
from tinycb.tracing.writer import TraceWriter

__all__ = ["add_texts"]


def add_texts(
    path: Path, token_text: Callable[[int], str] | None, prompts: Mapping[str, str | None], **header: Any
) -> None:
    """Rewrite the trace in place. prompts: by request id. header: entries that take the place of others.

    token_text: None where no tokenizer is at hand; then prompts and header entries are put in alone.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with TraceReader(path) as reader, TraceWriter(new, {**reader.header, **header}) as writer:
            for record in reader:
                for request in record.new_requests:
                    request.prompt = prompts.get(request.request_id)
                    if token_text is not None:
                        request.texts = [token_text(token) for token in request.prompt_token_ids]
                if token_text is not None:
                    record.sampled_texts = {name: token_text(token) for name, token in record.sampled.items()}
                writer.write(record)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
