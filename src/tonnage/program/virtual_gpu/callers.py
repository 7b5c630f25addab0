"""Whose code is running: the user's own, an installed package's, or torch's and ours."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

import torch

import tonnage

_OURS = os.path.dirname(os.path.abspath(tonnage.__file__)) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))


def is_user_file(name: str) -> bool:
    """Neither installed, nor Tonnage's, nor made up by Python."""
    return not name.startswith(("<", _OURS, *_INSTALLED))


def caller() -> FrameType:
    """The frame that asked torch for something: the innermost one outside torch and Tonnage."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, _TORCH)):
        frame = frame.f_back
    return frame


def asker() -> FrameType:
    """The innermost frame outside Tonnage, which may be torch's own code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame
