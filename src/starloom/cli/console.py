"""A run on the terminal: permanent lines for what happened, a live line for what is happening.

A reader of the journal's events and nothing else: `show` takes them in order, from this process's hub or over HTTP, and
decides only how to print. Without a terminal the live line is left out; with `--json` every event is one JSON line.
"""

import json
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from starloom.journal import events as e
from starloom.journal.events import Recorded
from starloom.llm.port import Progress
from starloom.safety.provenance import visible
from starloom.session.views import TaskLine, added_tasks, brief, recorded_row

_EXIT = {"finished": 0, "cancelled": 130, "user_refused": 6, "policy_denied": 6}


class JsonView:
    """Every event as one line of JSON on standard output."""

    def __enter__(self) -> "JsonView":
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()

    def show(self, recorded: Recorded) -> None:
        """Print the event."""
        sys.stdout.write(json.dumps(recorded_row(recorded), ensure_ascii=False) + "\n")
        sys.stdout.flush()

    def say(self, text: str, style: str = "") -> None:
        """Leave words for people out of a stream for programs."""


class RunView:
    """A run for a person."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._spinner = Spinner("dots")
        self._thinking: Callable[[], Mapping[str, Progress]] = dict
        self._tasks: dict[str, TaskLine] = {}
        self._running: dict[str, tuple[str, datetime]] = {}
        self._waiting_for = "planning"
        self._live = Live(console=self.console, get_renderable=self._line, refresh_per_second=8, transient=True)

    def __enter__(self) -> "RunView":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def watch(self, thinking: Callable[[], Mapping[str, Progress]]) -> None:
        """Have the live line say how far the replies are that are being written, by task."""
        self._thinking = thinking

    def say(self, text: str, style: str = "") -> None:
        """Print a line of our own between the events."""
        self.console.print(plain(text), style=style or None)

    def document(self, text: str) -> None:
        """Print a Markdown document: drawn on a terminal, as it is elsewhere."""
        self.console.print(Markdown(text) if self.console.is_terminal else text, markup=False)

    def hold(self) -> None:
        """Take the live line away while a person is asked something."""
        self._live.stop()

    def go_on(self) -> None:
        """Bring the live line back."""
        if self.console.is_terminal:
            self._live.start()

    def show(self, recorded: Recorded) -> None:
        """Print what the event means for a person, if anything."""
        match recorded.event:
            case e.RunStarted() | e.PlanProposed() | e.EditApplied() | e.RunEnded():
                self._show_run(recorded)
            case e.TaskStarted() | e.TaskCompleted() | e.TaskFailed() | e.TaskRetrying() | e.TaskCancelled():
                self._show_task(recorded)
            case e.TaskWaiting(task_id=task_id, reason=reason):
                self.console.print(f"[yellow]… {self._name(task_id)} waits: {plain(reason)}[/]")
            case e.ApprovalAnswered(approved=approved, by=by):
                word = "[green]approved" if approved else "[red]refused"
                self.console.print(f"  {word} by {plain(by)}[/]")
            case e.DeviceDisconnected(device_id=device_id, reason=reason):
                self.console.print(f"[yellow]! device {plain(device_id)} is gone {plain(reason)}[/]")
            case _:
                pass

    def _show_run(self, recorded: Recorded) -> None:
        match recorded.event:
            case e.RunStarted(request=request, source=source):
                self.console.print(f"[bold]{plain(request)}[/]  [dim]{recorded.run_id}[/]")
                if source == "request" and not self.console.is_terminal:
                    self.console.print("Planning …")
            case e.PlanProposed(summary=summary, model=model, warnings=warnings):
                self.console.print(f"Plan by {plain(model)}: {len(summary)} tasks")
                for line in summary:
                    self.console.print(f"  {plain(line)}")
                for line in warnings:
                    self.console.print(f"  [yellow]{plain(line)}[/]")
            case e.EditApplied(commands=commands):
                self._tasks.update((task.task_id, task) for task in added_tasks(commands))
                self._waiting_for = ""
            case e.RunEnded() as ended:
                self._waiting_for = ""
                self._running.clear()
                self._show_end(ended)

    def _show_end(self, ended: e.RunEnded) -> None:
        if ended.stop_reason == "finished":
            self.console.print("[green bold]✔ finished[/]")
            return
        reason = f": {plain(ended.error)}" if ended.error else ""
        self.console.print(f"[red bold]✘ {plain(ended.stop_reason)}[/]{reason}")

    def _show_task(self, recorded: Recorded) -> None:
        match recorded.event:
            case e.TaskStarted(task_id=task_id, device_id=device_id, attempt=attempt):
                self._running[task_id] = (device_id, recorded.at)
                again = f" (attempt {attempt})" if attempt > 1 else ""
                self.console.print(f"[blue]▶[/] {self._name(task_id)} [dim]on {plain(device_id)}{again}[/]")
            case e.TaskCompleted(task_id=task_id, result=result):
                self.console.print(
                    f"[green]✔[/] {self._name(task_id)} {self._took(recorded, task_id)} {plain(brief(result))}"
                )
            case e.TaskFailed(task_id=task_id, error=error, in_doubt=in_doubt):
                doubt = " Its effect may have happened; it is not tried again unasked." if in_doubt else ""
                self.console.print(f"[red]✘[/] {self._name(task_id)} {plain(error)}{doubt}")
            case e.TaskRetrying(task_id=task_id, error=error, delay_s=delay_s):
                self._running.pop(task_id, None)
                self.console.print(f"[yellow]↻[/] {self._name(task_id)} {plain(error)} Again in {delay_s:g} s.")
            case e.TaskCancelled(task_id=task_id, reason=reason, detail=detail):
                self._running.pop(task_id, None)
                self.console.print(f"[dim]– {self._name(task_id)} {plain(reason)} {plain(detail)}[/]")

    def _took(self, recorded: Recorded, task_id: str) -> str:
        _, since = self._running.pop(task_id, ("", recorded.at))
        return f"[dim]{(recorded.at - since).total_seconds():.1f} s[/]"

    def _name(self, task_id: str) -> str:
        task = self._tasks.get(task_id)
        return plain(task.name if task else task_id)

    def waiting(self) -> str:
        """Return what the run waits for now, and how far its models are; empty when for nothing."""
        thinking = self._thinking()
        if self._running:
            return "running: " + ", ".join(
                f"{self._name(task)} on {plain(device)}{_written(thinking.get(task))}"
                for task, (device, _) in tuple(self._running.items())  # the live line is drawn by a thread
            )
        return f"{self._waiting_for} …{_written(thinking.get(''))}" if self._waiting_for else ""

    def _line(self) -> RenderableType:
        text = self.waiting()
        if not text:
            return ""
        self._spinner.update(text=text)
        return self._spinner


def _written(progress: Progress | None) -> str:
    if progress is None:
        return ""
    verb = "thinks" if progress.is_thinking or not progress.output_tokens else "writes"
    counted = f", {progress.output_tokens} tokens" if progress.output_tokens else ""
    return f" ({plain(progress.model)} {verb}{counted})"


def exit_code(stop_reason: str) -> int:
    """Return the program's exit code for how a run ended; what is not listed is a run that failed."""
    return _EXIT.get(stop_reason, 1)


def plain(text: str) -> str:
    """Return foreign text as text: nothing in it moves the cursor, hides, turns around or colours anything."""
    return escape(visible(text))


def table_of(rows: list[dict[str, Any]], columns: dict[str, str]) -> Table:
    """Return rows as a table; `columns` maps a row's key to its heading."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in columns.values():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(plain("" if row.get(key) is None else str(row[key])) for key in columns))
    return table
