"""From files and programs to a plan, and from a plan to what runs on an engine."""

from tonnage.planning.making import allocate, plan_for, problem_of

__all__ = ["allocate", "plan_for", "problem_of"]
