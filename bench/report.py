"""The figures as tables, verdicts and JSON."""

import datetime
import importlib.metadata
import os
import platform
import statistics
from dataclasses import dataclass, field
from typing import Any

from bench.lines import BODY_BYTES, CRITERIA, LATENCY, NOTES, TITLES, Criterion, Line
from bench.run import Pass

RIVALS = ("multiprocessing.Queue", "faster-fifo")


@dataclass
class Result:
    """A line and what came of it; `problem` says why there are no figures."""

    line: Line
    count: int
    passes: list[Pass] = field(default_factory=list)
    problem: str = ""
    details: str = ""  # of a failure, for whoever has to find it

    @property
    def build(self) -> str:
        return self.passes[0].build

    @property
    def rate(self) -> float:
        return statistics.median(one.rate for one in self.passes)

    @property
    def p50(self) -> float:
        return statistics.median(one.p50 for one in self.passes)

    @property
    def p99(self) -> float:
        return statistics.median(one.p99 for one in self.passes)

    @property
    def speed(self) -> float:
        """What ratios are taken of; more is better."""
        return 1 / self.p50 if self.line.workload == LATENCY else self.rate


def ratio(results: list[Result], workload: str, name: str, rival: str) -> float | None:
    """How many times as fast; None when one of the two has no figures."""
    found = {
        result.line.name: result
        for result in results
        if result.line.workload == workload and not result.problem
    }
    if name not in found or rival not in found:
        return None
    return found[name].speed / found[rival].speed


def environment() -> dict[str, Any]:
    """Where and with what this was measured."""
    versions = {}
    for package in ("shmq", "faster-fifo", "numpy", "posix-ipc"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{_processor()}, {platform.system()} {platform.release()}",
        "cores": len(os.sched_getaffinity(0)),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": versions,
    }


def _processor() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for text in file:
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    return platform.machine()


def tables(results: list[Result], passes: int) -> str:
    """Everything for people; figures are medians, ratios are of medians."""
    out = []
    for workload in dict.fromkeys(result.line.workload for result in results):
        chosen = [result for result in results if result.line.workload == workload]
        is_latency = workload == LATENCY
        figures = ("p50", "p99") if is_latency else ("median", "all passes")
        out.append(f"{workload}  {TITLES[workload]}; {BODY_BYTES}-byte bodies, passes: {passes}")
        out.append(
            f"  {'':28}{'build run':12}{figures[0]:>11}{figures[1]:>25}"
            f"{'× mp.Queue':>12}{'× faster-fifo':>15}"
        )
        for result in chosen:
            out.append(f"  {result.line.name:28}" + _row(result, results, is_latency))
        out.append("")
    return "\n".join(out)


def _row(result: Result, results: list[Result], is_latency: bool) -> str:
    if result.problem:
        return f"{result.problem}"
    if is_latency:
        text = f"{result.build:12}{result.p50:>11.1f}{result.p99:>25.1f}"
    else:
        every = "  ".join(_short(one.rate) for one in result.passes)
        text = f"{result.build:12}{result.rate:>11,.0f}{every:>25}"
    line = result.line
    for rival, width in zip(RIVALS, (12, 15), strict=True):
        value = ratio(results, line.workload, line.name, rival)
        text += f"{'–' if value is None else f'{value:.2f}':>{width}}"
    note = NOTES.get((line.workload, line.name))
    return text + (f"   ({note})" if note else "")


def _short(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} K"


def verdict(criterion: Criterion, results: list[Result]) -> str:
    """PASS, FAIL, or that it could not be judged."""
    value = ratio(results, criterion.workload, criterion.line, criterion.rival)
    text = (
        f"{criterion.workload} {criterion.line} >= {criterion.at_least:g} × {criterion.rival}"
        f"{'' if value is None else f' ({value:.2f})'}"
    )
    if value is None:
        return f"NOT JUDGED  {text}: {_why(criterion, results)}"
    return f"{'PASS' if value >= criterion.at_least else 'FAIL'}  {text}"


def _why(criterion: Criterion, results: list[Result]) -> str:
    for result in results:
        line = result.line
        is_meant = line.name in (criterion.line, criterion.rival)
        if is_meant and line.workload == criterion.workload and result.problem:
            return f"{line.name} has no figures"
    return "not run"


def as_json(results: list[Result], where: dict[str, Any]) -> dict[str, Any]:
    """The same for programs, with every pass."""
    lines = []
    for result in results:
        line = result.line
        entry: dict[str, Any] = {
            "workload": line.workload,
            "line": line.name,
            "count": result.count,
            "problem": result.problem or None,
        }
        if not result.problem:
            entry["build"] = result.build or None
            if line.workload == LATENCY:
                entry |= {"p50_us": result.p50, "p99_us": result.p99}
                entry["passes"] = [{"p50_us": one.p50, "p99_us": one.p99} for one in result.passes]
            else:
                entry |= {"rate": result.rate, "passes": [one.rate for one in result.passes]}
            entry["ratios"] = {
                rival: ratio(results, line.workload, line.name, rival) for rival in RIVALS
            }
        lines.append(entry)
    return {
        **where,
        "body_bytes": BODY_BYTES,
        "lines": lines,
        "criteria": [verdict(criterion, results) for criterion in CRITERIA],
    }
