# Everything a newcomer needs: `make run` shows the product, `make test` proves it.
# The environment is made once, in .venv, from requirements.lock; torch has a line of its own,
# because its builds differ between machines.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

bin := .venv/bin
pip := $(bin)/python -m pip -qq --disable-pip-version-check --no-input
TORCH := 2.13.0
WORKERS := 2
PYTHON :=
NUMERICAL := $(addprefix tests/,algorithms metrics models numerics privacy training)
export OMP_NUM_THREADS ?= 1
# Many tests start programs: compiled once, they start twice as fast.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test test-all test-numerics test-pages lint format bench chaos scorecard clean

help:  ## say what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

setup: .venv/.stamp  ## make the environment in .venv (Python 3.11 or later)

.venv/.stamp: requirements.lock pyproject.toml
	@for python in "$(PYTHON)" python3.11 python3 python3.12 python3.13; do \
	  if [ -n "$$python" ] && "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    2>/dev/null; then break; fi; python=; done; \
	if [ -z "$$python" ]; then \
	  echo "setup: no Python 3.11 or later found; give one: make setup PYTHON=..."; exit 1; fi; \
	echo "setup: environment with $$("$$python" --version)"; "$$python" -m venv .venv
	@echo "setup: locked packages"; $(pip) install --no-deps --require-hashes -r requirements.lock
	@$(bin)/python -c 'import torch' 2>/dev/null \
	  || { echo "setup: torch $(TORCH)"; $(pip) install torch==$(TORCH); }
	@echo "setup: fedcohort"; $(pip) install --no-deps --no-build-isolation -e .
	@$(bin)/python -m pip --disable-pip-version-check check >.venv/check.log || { cat .venv/check.log; exit 1; }
	@$(bin)/python -m compileall -q src; touch $@; echo "setup: done"

run: .venv/.stamp  ## the first study, on real data: prints a table, writes a report
	@$(bin)/fedcohort run studies/quickstart.yaml

test: .venv/.stamp  ## the fast tests: every claim once, in less than five minutes on two cores
	@$(bin)/python -m pytest -n $(WORKERS) --durations=5

test-all: .venv/.stamp test-numerics test-pages  ## what `make test` leaves out: tests/slow.txt, other processors, pages
	@echo "test-all: slow tests, and more examples"; $(bin)/python -m pytest -m "slow or hypothesis" -n $(WORKERS)

# Plain kernels of PyTorch, and those of BLAS without AVX-512; `make test` takes what suits the processor.
test-numerics: .venv/.stamp  ## the numerical tests, slow ones too, as on another processor
	@echo "test-numerics: ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Haswell"
	@ATEN_CPU_CAPABILITY=default OPENBLAS_CORETYPE=Haswell $(bin)/python -m pytest -m "slow or not slow" -n $(WORKERS) $(NUMERICAL)

test-pages: .venv/.stamp  ## the tests that read a page of a report, with all its drawings
	@echo "test-pages: tests/study tests/report"; FEDCOHORT_TEST_PAGES=1 $(bin)/python -m pytest -n $(WORKERS) tests/study tests/report

lint: .venv/.stamp  ## style, types, the direction of imports, and what must not be committed
	@echo "lint: ruff"; $(bin)/ruff check --quiet; $(bin)/ruff format --check
	@echo "lint: types"; $(bin)/basedpyright
	@echo "lint: imports"; $(bin)/lint-imports --no-cache --no-logo >.venv/imports.log || { cat .venv/imports.log; exit 1; }
	@$(bin)/python tools/scan.py

format: .venv/.stamp  ## put the code into the house's form
	@$(bin)/ruff check --quiet --fix-only; $(bin)/ruff format --quiet

OUT :=

bench: .venv/.stamp  ## measure every goal of speed; fails where one is missed (OUT=FILE keeps the figures)
	@$(bin)/python benchmarks/speed/bench.py $(if $(OUT),--out $(OUT))

chaos: .venv/.stamp  ## kill, stop, cut and starve a network's processes; compare every result
	@$(bin)/python benchmarks/network/chaos.py
	@$(bin)/python benchmarks/network/sessions.py
	@$(bin)/python benchmarks/network/day.py

ROWS :=

scorecard: .venv/.stamp  ## measure privacy and robustness, row by row, and write the table in docs/security.md
	@$(bin)/python benchmarks/scorecard/run.py $(ROWS)

clean:  ## remove the environment and what runs left
	@rm -rf .venv runs build dist src/fedcohort.egg-info
