"""Drawing a constellation: layers for the terminal, Mermaid, SVG; pure functions from the graph to text.

For the CLI and reports. A layer holds the tasks whose longest way from a source has the same length. Names are escaped
for their format: a task's name is data, never markup.
"""

from collections import defaultdict
from xml.sax.saxutils import escape

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.enums import DependencyType, EdgeOutcome, TaskStatus
from starloom.constellation.line import TaskStarLine
from starloom.constellation.star import TaskStar
from starloom.constellation.statistics import layer_numbers

_MARKS = {
    TaskStatus.PENDING: "○",
    TaskStatus.WAITING_DEPENDENCY: "·",
    TaskStatus.RUNNING: "▶",
    TaskStatus.COMPLETED: "✔",
    TaskStatus.FAILED: "✘",
    TaskStatus.CANCELLED: "⊘",
}
_FILLS = {
    TaskStatus.PENDING: "#e8eefc",
    TaskStatus.WAITING_DEPENDENCY: "#f4f4f5",
    TaskStatus.RUNNING: "#fff3c4",
    TaskStatus.COMPLETED: "#d9f2e0",
    TaskStatus.FAILED: "#fbd9d9",
    TaskStatus.CANCELLED: "#e5e5e8",
}
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 180, 46, 70, 18, 20
_SHOWN = 24


def in_layers(constellation: TaskConstellation) -> list[list[TaskStar]]:
    """Return the tasks by layer, each in insertion order."""
    by_layer: dict[int, list[TaskStar]] = defaultdict(list)
    numbers = layer_numbers(constellation)
    for star in constellation.in_insertion_order():
        by_layer[numbers[star]].append(star)
    return [by_layer[number] for number in sorted(by_layer)]


def layers(constellation: TaskConstellation, *, width: int = 100, most: int = 40) -> str:
    """Return one block a layer for a terminal: mark, id, name, device, and what each task waits for.

    Args:
        constellation: what to draw.
        width: longer lines are cut.
        most: tasks shown a layer; the rest is counted.
    """
    lines = [
        f"{constellation.name or constellation.constellation_id}: {constellation.state.value}, "
        f"{constellation.task_count} tasks, {constellation.dependency_count} dependencies"
    ]
    for number, stars in enumerate(in_layers(constellation), 1):
        lines.append(f"layer {number}")
        lines += [_cut(f"  {_task_text(star)}", width) for star in stars[:most]]
        if len(stars) > most:
            lines.append(f"  … and {len(stars) - most} more")
    return "\n".join(lines)


def to_mermaid(constellation: TaskConstellation) -> str:
    """Return a Mermaid flowchart; dashed edges do not demand success, labels are conditions."""
    numbers = {star: index for index, star in enumerate(constellation.in_insertion_order())}
    lines = ["graph LR"]
    for star, index in numbers.items():
        lines.append(f'    n{index}["{_mermaid(_caption(star))}"]:::{star.status.value}')
    for line in _lines(constellation):
        source, target = constellation.tasks[line.from_task_id], constellation.tasks[line.to_task_id]
        label = _label(line)
        arrow = "-->" if line.dependency_type is DependencyType.SUCCESS_ONLY else "-.->"
        text = f'|"{_mermaid(label)}"|' if label else ""
        lines.append(f"    n{numbers[source]} {arrow}{text} n{numbers[target]}")
    for status, fill in _FILLS.items():
        lines.append(f"    classDef {status.value} fill:{fill},stroke:#71717a,color:#18181b")
    return "\n".join(lines) + "\n"


def to_svg(constellation: TaskConstellation) -> str:
    """Return a stand-alone SVG: layers from left to right, tasks coloured by status."""
    columns = in_layers(constellation)
    places: dict[TaskStar, tuple[int, int]] = {}
    for column, stars in enumerate(columns):
        for row, star in enumerate(stars):
            places[star] = (_MARGIN + column * (_BOX_WIDTH + _GAP_X), _MARGIN + row * (_BOX_HEIGHT + _GAP_Y))
    width = 2 * _MARGIN + max(len(columns), 1) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    tallest = max((len(stars) for stars in columns), default=1)
    height = 2 * _MARGIN + tallest * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{_xml(constellation.name or constellation.constellation_id)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#71717a"/></marker></defs>',
    ]
    parts += [_svg_line(line, constellation, places) for line in _lines(constellation)]
    parts += [_svg_box(star, *place) for star, place in places.items()]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _svg_line(line: TaskStarLine, constellation: TaskConstellation, places: dict[TaskStar, tuple[int, int]]) -> str:
    x1, y1 = places[constellation.tasks[line.from_task_id]]
    x2, y2 = places[constellation.tasks[line.to_task_id]]
    x1, y1, y2 = x1 + _BOX_WIDTH, y1 + _BOX_HEIGHT // 2, y2 + _BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    dashes = "" if line.dependency_type is DependencyType.SUCCESS_ONLY else ' stroke-dasharray="5 4"'
    colour = {EdgeOutcome.SATISFIED: "#3f9463", EdgeOutcome.UNSATISFIABLE: "#c24141"}.get(line.outcome, "#71717a")
    title = _xml(f"{line.from_task_id} → {line.to_task_id} ({line.dependency_type.value}) {_label(line)}".strip())
    return (
        f'<path d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}" fill="none" stroke="{colour}"{dashes} '
        f'marker-end="url(#tip)"><title>{title}</title></path>'
    )


def _svg_box(star: TaskStar, x: int, y: int) -> str:
    title = _xml(f"{star.task_id}: {star.name}\n{star.description}".strip())
    where = star.target_device_id or (star.device_type.value if star.device_type else "any device")
    return (
        f'<g><title>{title}</title><rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="8" '
        f'fill="{_FILLS[star.status]}" stroke="#71717a"/>'
        f'<text x="{x + 10}" y="{y + 19}" font-weight="600">{_xml(_MARKS[star.status])} '
        f"{_xml(_cut(star.name or star.task_id, _SHOWN))}</text>"
        f'<text x="{x + 10}" y="{y + 36}" fill="#52525b">{_xml(_cut(f"{where}, {star.status.value}", 28))}</text></g>'
    )


def _lines(constellation: TaskConstellation) -> list[TaskStarLine]:
    return sorted(constellation.lines.values(), key=lambda line: line.position)


def _task_text(star: TaskStar) -> str:
    name = f" {star.name}" if star.name and star.name != star.task_id else ""
    where = star.target_device_id or (f"any {star.device_type.value}" if star.device_type else "")
    device = f" @{where}" if where else ""
    after = ", ".join(line.from_task_id + _suffix(line) for line in star.lines_in[:4])
    more = f" +{len(star.lines_in) - 4}" if len(star.lines_in) > 4 else ""
    ends = f"  ! {star.error or star.detail}" if star.error or star.detail else ""
    return f"{_MARKS[star.status]} {star.task_id}{name}{device}{f'  ← {after}{more}' if after else ''}{ends}"


def _suffix(line: TaskStarLine) -> str:
    return {
        DependencyType.SUCCESS_ONLY: "",
        DependencyType.UNCONDITIONAL: " (any end)",
        DependencyType.COMPLETION_ONLY: " (when ended)",
        DependencyType.CONDITIONAL: f" (if {line.condition})",
    }[line.dependency_type]


def _label(line: TaskStarLine) -> str:
    if line.condition is not None:
        return line.condition
    return "" if line.dependency_type is DependencyType.SUCCESS_ONLY else line.dependency_type.value


def _caption(star: TaskStar) -> str:
    name = star.name or star.task_id
    return f"{name}\n{star.target_device_id}" if star.target_device_id else name


def _mermaid(text: str) -> str:
    escaped = text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return escaped.replace("`", "#96;").replace("\n", "<br/>")


def _cut(text: str, width: int) -> str:
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text if len(text) <= width else text[: width - 1] + "…"


def _xml(text: str) -> str:
    return escape("".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text))
