"""What a step costs on paper: bytes and operations, and the least seconds they take on a device.

Reading order: `shapes.py` (models by name), `devices.py` (figures and where they come from), `roofline.py`.
Bytes and operations are counted; seconds are *modelled* from a device's figures, and everything that shows
them says so. No torch, except in `measure.py`, which measures this machine.
"""
