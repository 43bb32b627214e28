# Everything runs in .venv, made from the committed locks; a target that needs it makes it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Tests start hundreds of processes; without its bytecode each would take twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test verify test-busy check types lint pins audit sbom bench mutants catalogue soak soak-examples chart pictures promises rights lock version release clean

demo: $(STAMP)
	$(BIN)/agent-scheduler demo $(DEMO_ARGS)

# Two more than there are cores, as many tests wait for processes.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(len(os.sched_getaffinity(0)) + 2, 8))')
# The configuration is named, because pytest would use that of the package if all paths were in one.
PYTEST  := $(BIN)/python -m pytest -c pyproject.toml --numprocesses $(WORKERS)

# Every rule once, every feature once end to end.
test: $(STAMP)
	$(PYTEST) -m "not wide" $(TEST_ARGS)

# All the rest: wide worlds, all recordings, images, browsers; then faults made in the source, which tests must notice.
verify: $(STAMP)
	$(PYTEST) -m wide $(TEST_ARGS)
	$(BIN)/python -m tests.mutants --sample $(MUTANTS) --seed "$$(git rev-parse HEAD)"
	$(BIN)/python -m tests.mutants.generated --files $(SOURCES) --sample $(FAULTS) --seed "$$(git rev-parse HEAD)"
# The sources of all distributions.
SOURCES := src packages/apimachinery/src packages/kube-client/src packages/embedded-kubernetes/src bench/src
MUTANTS ?= 4
FAULTS  ?= 10

# `make test` on a machine that is several times as slow.
BUSY ?= 4
test-busy: $(STAMP)
	$(BIN)/python -m tests.busy --processes $(BUSY) -- $(MAKE) test

check: types lint pins
types: $(STAMP)
	$(BIN)/mypy
lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ruff check --select $(DOCSTRINGS) $$($(BIN)/python -m tests.project.english --paths)
	$(BIN)/python -m tests.project.english
	$(BIN)/lint-imports
# The form of docstrings: a summary of one line that ends in a period, in the imperative for functions, then a blank line.
DOCSTRINGS := D200,D201,D202,D204,D205,D206,D207,D208,D209,D210,D211,D212,D300,D301,D400,D401,D402,D403,D404,D419

# What can be known of the locks without a service; with one, advisories are told, too. `audit` fails for them.
pins: $(STAMP)
	$(BIN)/python -m requirements.audit
audit: $(STAMP)
	$(BIN)/python -m requirements.audit --advisories

# What a release says that it is made of; the image brings its own.
SBOM ?= build/agent-scheduler.cdx.json
sbom: $(STAMP)
	$(BIN)/python -m requirements.sbom --output $(SBOM)
	$(BIN)/python -m requirements.audit --sbom $(SBOM)

bench: $(STAMP)
	$(BIN)/python -m bench $(BENCH_ARGS)

# Faults in the functions that this branch changes, then the catalogue.
BASE ?= origin/main
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants.generated --changed $(BASE) $(MUTANTS_ARGS)
catalogue: $(STAMP)
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

# Simulated worlds for so many minutes, from seeds that nobody has seen.
MINUTES ?= 10
soak: $(STAMP)
	$(BIN)/python -m tests.sim --minutes $(MINUTES) $(SOAK_ARGS)

# So many times the examples of a commit; Hypothesis's are from seeds that nobody has seen.
FACTOR ?= 10
soak-examples: $(STAMP)
	HYPOTHESIS_PROFILE=soak HYPOTHESIS_SOAK=$(FACTOR) $(BIN)/python -m pytest -c pyproject.toml --numprocesses auto \
	  -m 'hypothesis or drawn' $(TEST_ARGS)

# The other distributions of this repository, each after those that it needs. All have one version and one lock.
OTHERS := packages/apimachinery packages/kube-client packages/embedded-kubernetes bench

# Libraries are compiled as they are imported: most of what they bring never is.
$(STAMP): requirements/dev.lock pyproject.toml $(addsuffix /pyproject.toml,$(OTHERS))
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "agent-scheduler needs Python 3.11 or newer: make PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps $(addprefix -e ,$(OTHERS) .)
	touch $(STAMP)

# What is made of the manifests: the Helm chart, and Grafana's dashboard of its panels.
chart: $(STAMP)
	$(BIN)/python config/components/monitoring/make.py
	$(BIN)/python config/helm/make.py

# Resolves the locks anew, for every supported Python at once. What builds the image is what builds in development.
COMPILE := build/lock/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-header -q --no-emit-package agent-scheduler --no-emit-package agent-scheduler-bench \
  --no-emit-package apimachinery --no-emit-package kube-client --no-emit-package embedded-kubernetes

# The pictures of the documentation, from the code as it is. Needs Chromium, tmux and kubectl.
pictures: $(STAMP)
	$(BIN)/python -m tests.console.pictures $(PICTURES_ARGS)

# The page that lists the tests of each promise.
promises: $(STAMP)
	$(BIN)/python -m tests.project.promises

# The tables of rights in SECURITY.md and docs/operations.md, of the roles and policies in config.
rights: $(STAMP)
	$(BIN)/python -m tests.project.rights

lock:
	$(PYTHON) -m venv build/lock && build/lock/bin/pip install --quiet uv
	$(COMPILE) --upgrade --extra dev pyproject.toml -o requirements/dev.lock
	$(COMPILE) --upgrade --extra webhook --extra tracing --constraint requirements/dev.lock pyproject.toml \
	  -o requirements/run.lock
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
	  > build/lock/build.in
	echo '# What builds the wheel in the image, as dev.lock pins it; a test keeps the two equal.' > build/lock/build.lock
	$(COMPILE) --no-annotate --constraint requirements/dev.lock build/lock/build.in >> build/lock/build.lock
	mv build/lock/build.lock requirements/build.lock

# All places that state the version: make version VERSION=X.Y.Z
version: $(STAMP)
	$(BIN)/python -m release.versions '$(VERSION)'

# All files of a release of this commit in dist, and its tag in this clone: make release VERSION=X.Y.Z [RELEASE_ARGS=--dry-run]
release: $(STAMP)
	$(BIN)/python -m release '$(VERSION)' $(RELEASE_ARGS)

clean:
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
