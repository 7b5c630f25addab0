"""Predicted beside measured, for a distribution that has run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tonnage.estimate.page_text import duration, escape
from tonnage.split.page_words import arrowed, count_words

_WIDEST = 0.5  # an error that fills its half of the bar
_WHOLE = ("period", "latency", "step")


def measured_section(run: Mapping[str, Any] | None, title: str) -> str:
    """`run` is what an outcome says of itself: `beside`, rows with `what`, `predicted` and `measured` seconds, and
    `report`."""
    if not run or not run.get("beside"):
        return ""
    rows = "".join(_row(each) for each in _ordered(run["beside"]))
    return (
        '<section aria-labelledby="measured"><h2 id="measured">Predicted beside measured</h2>'
        f'<p class="note">{title} {_words(run.get("report") or {})}</p>'
        '<div class="scroll"><table class="plain narrow beside"><thead><tr><th scope="col">what</th>'
        '<th scope="col">predicted</th><th scope="col">measured</th><th scope="col">predicted is</th>'
        '<th scope="col" class="text"><span class="unseen">difference</span></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _ordered(beside: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The whole first, then devices, then links."""
    yield from sorted(beside, key=lambda each: (each["what"] not in _WHOLE, "->" in each["what"]))


def _words(report: Mapping[str, Any]) -> str:
    parts = []
    if count := report.get("samples"):
        parts.append(f"{count_words(count, 'step' if report.get('mode') == 'training' else 'sample')} were measured.")
    if report.get("is_equal") is True:
        parts.append("Results were equal to those of the network in one process, to the last bit.")
    elif report.get("is_equal") is False:
        difference = report.get("largest_difference") or 0.0
        parts.append(f"Results differed from those of the network in one process by up to {difference:.3g}.")
    return " ".join(parts)


def _row(each: Mapping[str, Any]) -> str:
    predicted, measured = float(each["predicted"]), float(each["measured"])
    error = predicted / measured - 1 if measured else 0.0
    width = 50 * min(abs(error) / _WIDEST, 1.0)
    left = 50.0 if error >= 0 else 50 - width
    what = escape(arrowed(each["what"]))
    named = what if each["what"] in _WHOLE else f"<code>{what}</code>"
    return (
        f'<tr{" class=all" if each["what"] in _WHOLE else ""}><th scope="row">{named}</th>'
        f"<td>{duration(predicted)}</td><td>{duration(measured)}</td><td>{_error(error)}</td>"
        '<td class="text"><span class="error" aria-hidden="true">'
        f'<i style="left:{left:.1f}%;width:{width:.1f}%"></i></span></td></tr>'
    )


def _error(error: float) -> str:
    if abs(error) < 0.0005:
        return "equal"
    return f"{100 * abs(error):.1f} % {'more' if error > 0 else 'less'}"
