"""The HTML report: one file that needs nothing else, with every claim, cell and arrow, and names as they are."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

import pytest

from topologies import html_report, run_report
from topologies.html_report import LinkFlow, LinkMap
from topologies.results import Check, ClassResult, Drops, LinkPfc, RunResult, Sample
from topologies.scenario import Line, Panel, Plot, Table

VOID = {"meta", "img", "line", "rect", "path", "br"}


class Page(HTMLParser):
    """Tags in balance, what refers to something outside, texts by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.images: list[bytes] = []
        self.texts: dict[str, list[str]] = {}
        self.count: dict[str, int] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "href", "xlink:href") and value is not None:
                if value.startswith("data:image/png;base64,"):
                    self.images.append(base64.b64decode(value.partition(",")[2]))
                else:
                    self.outside.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(data)


PLOT = Plot("p", "a & b", "seconds", [Panel("y", [Line("l", [0, 1], [1, 2])])])
CHECKS = [Check("<storage> loses nothing", True, "0 lost"), Check("shares & weights", False, "66%")]


def test_a_page_needs_nothing_else() -> None:
    table = Table("Classes", ("class", "lost", "paused"), [("storage", "1,024", "0.5 s"), ("<b>", "-", "1 s")])
    text = html_report.report("incast", CHECKS, [table], [PLOT])
    page = Page(text)
    assert (page.outside, "script" in page.count, "link" in page.count) == ([], False, False)
    assert [image[:8] for image in page.images] == [b"\x89PNG\r\n\x1a\n"]
    assert page.texts["td"] == ["storage", "1,024", "0.5 s", "<b>", "-", "1 s"]
    assert page.texts["h1"] == ["incast"]
    assert page.texts["p"] == ["1 of 2 claims failed"]
    assert page.texts["span"] == ["proved", "0 lost", "FAILED", "66%"]
    assert text.count('<td class="number">') == 4
    assert text == html_report.report("incast", CHECKS, [table], [PLOT])


def test_a_map_has_an_arrow_for_each_flow() -> None:
    flows = [LinkFlow("leaf1", "spine1", 10, "10"), LinkFlow("spine1", "leaf2", 5, "5")]
    links = LinkMap("run", [["spine1"], ["leaf1", "leaf2"]], [("leaf1", "spine1"), ("leaf2", "spine1")], flows)
    page = Page(html_report.report("t", [], (), (), [links]))
    assert page.count["line"] == 2 + 2
    assert page.texts["text"] == ["5", "10", "spine1", "leaf1", "leaf2"]  # the weakest first, below the others


@pytest.mark.parametrize(
    ("links", "hops"),
    [
        ([], 0),
        ([("leaf1", "spine1")], 1),
        ([("leaf1", "spine1"), ("spine1", "leaf2"), ("leaf2", "h5"), ("leaf2", "h6")], 3),
        ([("a", "b"), ("b", "c"), ("c", "a")], 2),  # in a circle, no node twice
    ],
)
def test_hops(links: list[tuple[str, str]], hops: int) -> None:
    assert run_report.spread_hops(links) == hops


def test_the_report_of_a_run(tmp_path: Path) -> None:
    sample = Sample(1.0, {"storage": 6e7}, {"storage": 1000}, 3, {"storage": 0})
    run = RunResult(
        name="PFC on",
        duration_s=15,
        classes=(ClassResult("storage", 3, 1000, 990, 10, 0, 5, 60_000_000),),
        pfc=(LinkPfc("leaf1", "spine1", 7, 2, (3,), 9), LinkPfc("spine1", "leaf2", 4, 1, (3,))),
        share={3: 0.61},
        configured_share={3: 0.6},
        paused_ns={3: 1_500_000_000},
        left_in_buffers_bytes=0,
        drops=(Drops("leaf1", "queue limit", 3, 10),),
        samples=(sample,),
    )
    path = run_report.write(tmp_path / "report.html", "s", [run], CHECKS, {"seed": 1})
    page = Page(path.read_text())
    assert len(page.images) == 1
    cells = page.texts["td"]
    assert cells[:12] == [
        *("PFC on", "storage", "3", "1,000", "990", "10", "0", "5", "60.0", "61.0%", "60%", "1.500 s"),
    ]
    assert cells[12:26] == [
        *("PFC on", "leaf1", "spine1", "3", "7", "2", "9"),
        *("PFC on", "spine1", "leaf2", "3", "4", "1", "n/a"),
    ]
    assert cells[26:] == ["PFC on", "leaf1", "queue limit", "3", "10"]
    [caption] = page.texts["figcaption"]
    assert caption.endswith("the longest way on from link to link is 2 hops")
