"""Caffe models: `load(prototxt, caffemodel)` reads, checks and runs them. No Caffe, no protobuf."""

from tonnage.program.caffe.model import Model, load

__all__ = ["Model", "load"]
