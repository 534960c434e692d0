# One word each. `make run` and `make test` do all their own set-up.
VENV   ?= .venv
PYTHON ?= python3
PY      = $(VENV)/bin/python

.PHONY: build test unit lint clean

$(VENV)/.ready: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip setuptools "Cython>=3.1"
	$(PY) -m pip install --quiet "click>=8.1" "cramjam>=2.9" "rich>=13.7" "structlog>=24.1" pytest
	touch $@

build: $(VENV)/.ready
	$(PY) setup.py --quiet build_ext --inplace --parallel 2

test: build
	$(PY) -m pytest kbroker/tests
