"""Chapter 12 with vLLM at hand: it serves the chapter's prompts, and decides as the recorded run did."""

import pytest

from tests.learn.harness import CHAPTERS, run_once
from tinycb.adapters import vllm_settings
from tinycb.model.checkpoint import ModelError, smollm2_file


@pytest.mark.vllm
@pytest.mark.smollm2
def test_chapter_12_compares_with_a_live_vllm():
    try:
        smollm2_file()
        vllm_settings.find()
    except (ModelError, ValueError) as error:
        pytest.skip(str(error))
    chapter = next(chapter for chapter in CHAPTERS if chapter.number == 12)
    out, _ = run_once(chapter, "real")
    assert "just now: the same decisions in all" in " ".join(out.split())
