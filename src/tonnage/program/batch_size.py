"""Finds and changes the batch size of a program that was not written to be asked for it.

Programs keep it in one of three places: an argparse option, a constant at the top of the script, or the data loader.
They are looked at in this order; the first that is there counts.
"""

from __future__ import annotations

import argparse
import ast
import re
from typing import Any

_OPTION = re.compile(r"((per_device_)?(train_|micro_|global_)?)?(batch|bs)(_?size)?(_per_(gpu|device))?", re.IGNORECASE)
_CONSTANT = re.compile(r"(TRAIN_|MICRO_)?BATCH(_?SIZE)?|BS|batch_size|train_batch_size|micro_batch_size|batchsize")


class BatchSize:
    """What the program's batch size is, and what it shall be."""

    def __init__(self, wanted: int | None, name: str = "") -> None:
        self.wanted = wanted
        self.found: int | None = None
        self.where = ""
        self._name = name

    def note(self, value: int, where: str) -> None:
        if self.found is None:
            self.found, self.where = value, where

    # -- argparse -----------------------------------------------------------------------------------------------------

    def watch_arguments(self) -> None:
        original = argparse.ArgumentParser.parse_known_args

        def parse(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
            namespace, rest = original(parser, *args, **kwargs)
            self._look_at(namespace.__dict__)
            return namespace, rest

        argparse.ArgumentParser.parse_known_args = parse  # type: ignore[method-assign, assignment]

    def _look_at(self, options: dict[str, Any]) -> None:
        matching = [
            n for n, v in options.items() if self._matches(n) and isinstance(v, int) and not isinstance(v, bool)
        ]
        for name in sorted(matching, key=lambda n: ("train" not in n, "eval" in n or "test" in n or "val" in n))[:1]:
            self.note(options[name], f"the option {name}")
            if self.wanted is not None and self.where == f"the option {name}":
                options[name] = self.wanted

    def _matches(self, name: str) -> bool:
        return name == self._name if self._name else _OPTION.fullmatch(name) is not None

    # -- a constant ---------------------------------------------------------------------------------------------------

    def rewrite(self, tree: ast.Module) -> ast.Module:
        """The script with its constant changed; a script that parses options keeps its constants."""
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                name, value = node.targets[0].id, node.value
                fits = name == self._name if self._name else _CONSTANT.fullmatch(name) is not None
                if fits and isinstance(value, ast.Constant) and type(value.value) is int and self.found is None:
                    self.note(value.value, f"the constant {name}")
                    if self.wanted is not None:
                        value.value = self.wanted
        return tree

    # -- the data loader ----------------------------------------------------------------------------------------------

    def for_loader(self, batch_size: int | None) -> int | None:
        """The batch size a data loader shall use instead of its own."""
        if not isinstance(batch_size, int) or self._name:
            return batch_size
        self.note(batch_size, "the data loader")
        changes = self.wanted is not None and self.where == "the data loader" and batch_size == self.found
        return self.wanted if changes else batch_size
