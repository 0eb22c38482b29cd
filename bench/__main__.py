"""`python -m bench`: every line in interleaved passes, then tables, verdicts, build/bench.json.

Exit code: 0 when every line that could run gave figures, whatever the verdicts (a noisy
machine fails no build); 1 when a line failed; 130 when interrupted.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

from bench import builds, load, report
from bench.lines import CRITERIA, CYCLE, LATENCY, LINES, TITLES, Line
from bench.report import Result
from bench.run import LineFailed, measure

OUTPUT = Path("build/bench.json")


def main() -> int:
    """Measure what the command line asks for."""
    options = _options()
    # So that `kill` cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        builds.use(builds.COMPILED)
    except ModuleNotFoundError as error:
        print(f"{error}: shmq is not installed for {sys.executable}; try make bench")
        return 2
    where = report.environment()
    meter = load.Meter()
    results = [Result(line, _count(line, options.quick)) for line in LINES]
    results = [result for result in results if options.only in (None, result.line.workload)]
    for result in results:
        if result.line.peer().is_absent():
            result.problem = f"ABSENT: {result.line.peer().name} is not installed (make bench does)"
    try:
        for number in range(1, options.passes + 1):
            _one_round(results, f"pass {number}/{options.passes}")
    except KeyboardInterrupt:
        print("\ninterrupted; everything is cleaned up", file=sys.stderr)
        return 130
    where["used_by_others"] = others = meter.others()
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    print(f"{where['date']}  {where['machine']}, {where['cores']} cores")
    print(f"{where['python']}, {versions}")
    print(f"others used {others:.0%} of the cores meanwhile\n")
    print(report.tables(results, options.passes))
    for criterion in CRITERIA:
        print(report.verdict(criterion, results))
    if others > load.BUSY:
        print("THE MACHINE WAS BUSY: these ratios and verdicts prove nothing; run it again")
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report.as_json(results, where), indent=1) + "\n")
    print(f"\nall figures: {OUTPUT}")
    failed = [result for result in results if result.details]
    for result in failed:
        print(f"\n{result.line.workload} {result.line.name}: {result.details}", file=sys.stderr)
    return 1 if failed else 0


def _one_round(results: list[Result], where: str) -> None:
    """Every line once, one after the other: what disturbs, disturbs all of them."""
    for result in results:
        if result.problem:
            continue
        line = result.line
        print(f"{where}  {line.workload}  {line.name} …", end=" ", file=sys.stderr, flush=True)
        try:
            one = measure(line, result.count)
        except LineFailed as error:
            result.details = str(error).strip()
            result.problem = f"FAILED: {result.details.splitlines()[-1]}"
            print("FAILED", file=sys.stderr)
            continue
        result.passes.append(one)
        figure = f"{one.p50:.1f} µs" if line.workload == LATENCY else f"{one.rate:,.0f}/s"
        print(figure, file=sys.stderr)


def _count(line: Line, is_quick: bool) -> int:
    if not is_quick:
        return line.count
    return line.count // 10 if line.workload == LATENCY else max(CYCLE, line.count // 10)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument("--only", choices=TITLES, help="one workload")
    parser.add_argument("--passes", type=int, default=3, help="rounds over all lines (%(default)s)")
    options = parser.parse_args()
    if options.passes < 1:
        parser.error("--passes must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
