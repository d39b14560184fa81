"""A widget that shows lines made elsewhere and repaints only those that changed."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget


class Canvas(Widget):
    """All of the screen: `draw(width, height)` gives its lines."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"

    class Clicked(Message):
        """A click on a cell; `twice` for a double one."""

        def __init__(self, x: int, y: int, twice: bool) -> None:
            super().__init__()
            self.x, self.y, self.twice = x, y, twice

    def __init__(self, draw: Callable[[int, int], list[Text]]) -> None:
        super().__init__()
        self._draw = draw
        self._strips: list[Strip] = []
        self._drawn_for = Size(0, 0)

    def redraw(self) -> None:
        """Make the lines anew; repaint those that differ from what is shown."""
        size = self.size
        if not size.area:
            return
        console = self.app.console
        strips = [_strip(line, size.width, console) for line in self._draw(size.width, size.height)]
        before, self._strips = self._strips, strips
        if size != self._drawn_for or len(before) != len(strips):
            self._drawn_for = size
            self.refresh()
            return
        changed = [y for y, (old, new) in enumerate(zip(before, strips, strict=True)) if old != new]
        if changed:
            self.refresh(*(Region(0, y, size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """One line, as Textual asks for it."""
        strip = self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)
        return strip.apply_style(self.rich_style)

    def on_resize(self, event: events.Resize) -> None:
        """The size has changed: all lines with it."""
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Tell the screen where."""
        self.post_message(self.Clicked(event.x, event.y, event.chain >= 2))


def _strip(line: Text, width: int, console: Console) -> Strip:
    """A line of exactly `width` cells."""
    return Strip(_segments(line, console)).adjust_cell_length(width)


def _segments(line: Text, console: Console) -> list[Segment]:
    """A line's pieces. Ours are appended one after the other, which needs none of Rich's work on overlaps."""
    plain = line.plain
    base = line.style if isinstance(line.style, Style) else Style.parse(line.style)
    found, at = [], 0
    for start, end, style in line.spans:
        if start < at or not isinstance(style, Style):
            return list(line.render(console))
        if start > at:
            found.append(Segment(plain[at:start], base))
        found.append(Segment(plain[start:end], base + style))
        at = end
    if at < len(plain):
        found.append(Segment(plain[at:], base))
    return found
