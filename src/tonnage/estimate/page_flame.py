"""The flame graph of the report: GPU time of a step by module, then by operator. Nested lists whose boxes share the width.

The browser does the layout: each box grows by its time, so that other times, or hiding what is beside a box, are enough
to draw it anew.
"""

from __future__ import annotations

from tonnage.estimate.page_text import duration, escape, name_of, percent
from tonnage.estimate.step_tree import MODULE, PHASES, REST, Box
from tonnage.estimate.step_view import StepView

FAMILIES = {
    "product": "matrix products",
    "convolution": "convolutions",
    "attention": "attention",
    "normalisation": "norms, softmax, sums",
    "pointwise": "element by element",
    "other": "other",
    "copy": "copies",
}
CHOICES = ("forward", "backward", "optimizer")


def flame_section(view: StepView | None) -> str:
    if view is None or view.tree.total_seconds <= 0:
        return ""
    return (
        '<section aria-labelledby="flame"><h2 id="flame">GPU time by module</h2>'
        f'<p class="note">Each box is a module, as wide as its time on {name_of(view.gpu)} in one step; the coloured ones '
        'are its operators. <span class="scripted" hidden>Choose a box to see it alone, or focus it and use the arrow '
        "keys, Enter and Escape.</span></p>"
        f"{_tools(view.tree)}{_legend(view.tree)}"
        f'<ul class="flame" role="tree" aria-label="GPU time by module">{draw_box(view.tree)}</ul>'
        '<p class="readout scripted" id="box" aria-live="polite" hidden></p>'
        f"<details><summary>The modules that take longest, as a table</summary>{_table(view.tree)}</details></section>"
    )


def _tools(tree: Box) -> str:
    known = {phase for phase, seconds in zip(PHASES, tree.seconds, strict=True) if seconds > 0}
    choices = "".join(_choice(phase) for phase in ("all", *CHOICES) if phase == "all" or phase in known)
    return (
        '<div class="tools flame-tools scripted" hidden><fieldset class="switch"><legend class="unseen">Phase</legend>'
        f'{choices}</fieldset><label for="find">Find</label> <input id="find" type="search" '
        'placeholder="attn, mlp, norm …" autocomplete="off"> <span id="found" role="status"></span>'
        '<a id="folded" download="step.folded" href="#flame">folded stacks</a></div>'
        '<nav class="crumbs scripted" id="flame-path" aria-label="Where you are in the graph" hidden></nav>'
    )


def _choice(phase: str) -> str:
    checked = " checked" if phase == "all" else ""
    return f'<label><input type="radio" name="flame-phase" value="{phase}"{checked}>{phase}</label>'


def _families(box: Box) -> set[str]:
    return {box.family}.union(*(_families(child) for child in box.children))


def _legend(tree: Box) -> str:
    known = _families(tree)
    items = "".join(
        f'<li><i class="swatch f-{family}"></i>{text}</li>' for family, text in FAMILIES.items() if family in known
    )
    return f'<ul class="keys" aria-label="Colours">{items}</ul>'


def draw_box(box: Box) -> str:
    """`data-t` holds its nanoseconds in each phase."""
    times = " ".join(str(round(1e9 * seconds)) for seconds in box.seconds)
    kind = box.family if box.family in (MODULE, REST, *FAMILIES) else "other"
    inside = f'<ul role="group">{"".join(map(draw_box, box.children))}</ul>' if box.children else ""
    return (
        f'<li class="f-{kind}" role="treeitem" data-t="{times}" style="flex-grow:{round(1e9 * box.total_seconds)}">'
        f"<span>{escape(box.name)}</span>{inside}</li>"
    )


def _table(tree: Box) -> str:
    """The modules whose own operators take most time."""
    own = sorted(_own_times(tree, ""), key=lambda item: -item[1])[:20]
    rows = "".join(
        f"<tr><td>{duration(seconds)}</td><td>{percent(seconds, tree.total_seconds)}</td>"
        f'<td class="text path"><code>{escape(path)}</code></td></tr>'
        for path, seconds in own
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="The modules that take longest">'
        '<table class="plain compact"><thead><tr>'
        '<th scope="col">time</th><th scope="col">of all</th><th scope="col" class="text">module</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def _own_times(box: Box, path: str) -> list[tuple[str, float]]:
    """Of each module, the time of what is directly in it."""
    own = sum(child.total_seconds for child in box.children if child.family != MODULE)
    found = [(path or box.name, own)] if own > 0 else []
    for child in box.children:
        if child.family == MODULE:
            found += _own_times(child, f"{path}.{child.name}" if path else child.name)
    return found
