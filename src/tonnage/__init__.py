"""Tonnage tells you, before you run it, what a deep-learning program will need on any GPU, and then puts it there."""

__version__ = "0.1.0"
