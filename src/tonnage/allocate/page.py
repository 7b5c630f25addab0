"""A plan as one HTML page that works offline: GPUs over time with what fills their memory, tasks with their reasons."""

from __future__ import annotations

from importlib.resources import files

from tonnage.allocate.gantt import draw_gantt
from tonnage.allocate.objectives import Objective, words_for
from tonnage.allocate.plan import Assignment, Plan
from tonnage.allocate.problem import Problem
from tonnage.allocate.reasons import what_more_would_bring
from tonnage.estimate.page_text import escape, page_head
from tonnage.units import format_seconds

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"


def render_page(problem: Problem, plan: Plan) -> str:
    """A complete document that loads nothing from anywhere and runs no script."""
    style = (
        files("tonnage.estimate").joinpath("page.css").read_text() + files(__package__).joinpath("page.css").read_text()
    )
    head = page_head(f"Plan of {len(plan.assignments)} tasks", _POLICY, style)
    return f"""{head}<body>
<header>
<p class="brand"><span>Tonnage allocate</span></p>
<p class="summary">{_summary(problem, plan)}</p>
</header>
<main>
<section><h2>GPUs over time</h2>
<p class="note">A bar is a task; bars above each other share a GPU. Below them: how much of its memory they take.</p>
{draw_gantt(problem, plan)}</section>
{_unplaced(plan)}
{_tasks(plan)}
</main>
</body>
</html>
"""


def _summary(problem: Problem, plan: Plan) -> str:
    objective = Objective(plan.objective)
    text = (
        f"{len(plan.assignments):,} tasks on {len(problem.devices):,} GPUs are done after "
        f"<strong>{format_seconds(plan.makespan_seconds)}</strong>."
    )
    if objective is not Objective.MAKESPAN:
        text += f" Aim: {objective.value}, <strong>{words_for(objective, plan.value)}</strong>."
    if plan.value <= plan.bound:
        text += " No plan is better."
    elif plan.bound > 0:
        text += f" No plan is below {words_for(objective, plan.bound)}; this one is {plan.gap:.1%} above."
    if more := what_more_would_bring(plan):
        text += f" {escape(more[0].upper() + more[1:])}."
    return text


def _unplaced(plan: Plan) -> str:
    if not plan.unplaced:
        return ""
    rows = "".join(f"<li><code>{escape(each.task)}</code> {escape(each.reason)}</li>" for each in plan.unplaced)
    return f"<section><h2>Not placed</h2><ul>{rows}</ul></section>"


def _tasks(plan: Plan) -> str:
    rows = "".join(_row(each) for each in plan.assignments)
    return (
        '<section><h2>Tasks</h2><div class="scroll"><table class="plan"><thead><tr><th>task</th><th>GPUs</th>'
        '<th class="n">start</th><th class="n">end</th><th>why</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _row(each: Assignment) -> str:
    start = format_seconds(each.start_seconds) if each.start_seconds else "0"
    return (
        f'<tr id="task-{escape(each.task)}"><td><code>{escape(each.task)}</code></td><td>{escape(" ".join(each.gpus))}</td>'
        f'<td class="n">{start}</td><td class="n">{format_seconds(each.end_seconds)}</td>'
        f"<td>{escape(each.reason)}</td></tr>"
    )
