"""The record of a run: one `StepRecord` a step, and what is read out of them."""

from tinycb.tracing.records import NewRequest, StepRecord

__all__ = ["NewRequest", "StepRecord"]
