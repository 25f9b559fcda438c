"""The panels' drawings, one file each, in the order in which the tabs show them."""

from tinycb.tui.drawing import Drawing
from tinycb.tui.panels.batch import BatchDrawing
from tinycb.tui.panels.blocks import BlocksDrawing
from tinycb.tui.panels.budget import BudgetDrawing
from tinycb.tui.panels.mask import MaskDrawing
from tinycb.tui.panels.place import PlaceDrawing
from tinycb.tui.panels.requests import RequestsDrawing
from tinycb.tui.panels.timeline import TimelineDrawing
from tinycb.tui.panels.why import WhyDrawing

__all__ = ["DRAWINGS"]

DRAWINGS: tuple[type[Drawing], ...] = (
    TimelineDrawing,
    BatchDrawing,
    WhyDrawing,
    RequestsDrawing,
    MaskDrawing,
    BlocksDrawing,
    BudgetDrawing,
    PlaceDrawing,
)
