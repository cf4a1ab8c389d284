# Two commands are all a newcomer needs: `make demo` and `make test`.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help venv demo test lint types

help:
	@echo "make demo   run the main job: many writers, one table (ARGS=\"--writers 8 --rows 50000 --seed 7\")"
	@echo "make test   lint, types and all tests; installs what they need"
	@echo "make venv   make $(VENV) with the package (editable), every extra and the development tools"

venv: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy
