# Two environments: .venv has the compiled build, .venv-plain the interpreted one.
PYTHON ?= python3
SOURCES := $(wildcard persist/*.py persist/*.pyx persist/*.pxd shmq/*.py shmq/*.pxd) setup.py pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help run test check style types crash bench docs clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: .venv/installed  ## set up, then run the demo: producers, consumers, kill -9, nothing lost
	.venv/bin/python examples/demo.py

test: .venv/installed .venv-plain/installed  ## set up, then run every test on both builds
	SHMQ_EXPECT=compiled .venv/bin/pytest -q -m "not long"
	SHMQ_EXPECT=interpreted .venv-plain/bin/pytest -q -m "not long"

check: style types .venv/installed  ## style, types and the fast tests, in about a minute
	SHMQ_EXPECT=compiled .venv/bin/pytest -q -x -m "not long"

style: .venv/installed  ## ruff
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

types: .venv/installed  ## mypy --strict
	.venv/bin/mypy

crash: .venv/installed .venv-plain/installed  ## the crash battery: enumeration, single-stepping, storms
	SHMQ_EXPECT=compiled .venv/bin/pytest -q -s -m long
	SHMQ_EXPECT=interpreted .venv-plain/bin/pytest -q -s -m long

bench: .venv/installed  ## measure against the rivals, side by side
	-.venv/bin/python -m pip install -q --disable-pip-version-check 'faster-fifo>=1.4'
	.venv/bin/python -m bench

docs: .venv/installed  ## print the layout tables into docs/formats.md
	.venv/bin/python docs/print_formats.py

clean:  ## remove the environments and everything built
	rm -rf .venv .venv-plain build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/installed: $(SOURCES)
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	SHMQ_COMPILE=yes .venv/bin/python -m pip install -q --disable-pip-version-check '.[dev]'
	@touch $@

.venv-plain/installed: $(SOURCES)
	test -x .venv-plain/bin/python || $(PYTHON) -m venv .venv-plain
	SHMQ_COMPILE=no .venv-plain/bin/python -m pip install -q --disable-pip-version-check '.[dev]'
	@touch $@
