PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

# The frameworks whose agents the adapters run are here too, because types and tests need them.
EXTRAS := agents,agent-framework,cluster,dev,langgraph,openai-agents,test

.DEFAULT_GOAL := help
.PHONY: help venv demo dev check test test-all core histories bench capacity browser image chaos chaos-long simulate mutate soak lock manifests clean pictures release

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/installed  ## make the virtual environment, if what it depends on has changed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[$(EXTRAS)]"
	@touch $@

$(VENV)/installed-%: $(VENV)/installed
	$(PIP) -e ".[$(EXTRAS),$*]"
	@touch $@

demo: venv  ## run four examples on a stack of their own (ANSWER=approve answers for you)
	$(BIN)/python -m examples.demo $(if $(ANSWER),--answer $(ANSWER))

dev: venv  ## keep Temporal, a worker and the API up (APP=module:name says what to serve)
	$(BIN)/abeyance dev $(APP)

check: venv  ## lint, format, types, imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Most tests wait for servers, so more processes than processors pay. A file stays in one process.
PYTEST := $(BIN)/pytest -n 4 --dist loadfile --durations=50

# Tests start many processes. Where the environment forbids it to keep compiled modules, each of them would
# compile hundreds.
test test-all core browser image chaos simulate mutate: export PYTHONDONTWRITEBYTECODE =

TESTS_QUICK := $(PYTEST) -m "not browser and not slow" $(EXCEPT:%=--ignore=%)

# What failed beside the others, such as by a time limit, has to pass alone.
TESTS_ALONE := -n 0 -v --last-failed --last-failed-no-failures=none

test: venv  ## the quick tests (EXCEPT=tests/core leaves a folder out)
	$(TESTS_QUICK) || $(TESTS_QUICK) $(TESTS_ALONE)

TESTS_ALL := $(PYTEST) -m "not browser" --hypothesis-profile=wide

test-all: venv  ## every test that needs no browser, with more examples of what calls and runs may be
	$(TESTS_ALL) || $(TESTS_ALL) $(TESTS_ALONE)

core: venv  ## the tests of the core alone, which have to run its branches
	$(BIN)/pytest -n 2 tests/core --cov=abeyance.core --cov-branch --cov-report=term-missing:skip-covered --cov-fail-under=100

browser: $(VENV)/installed-browser  ## only the tests that need Chromium and its driver
	$(BIN)/pytest -m browser

image: venv  ## build the image and run it, as root (apt-get install podman runc catatonit debootstrap)
	$(BIN)/pytest -v -rs tests/packaging/test_image.py

chaos: venv  ## only the tests that kill processes
	$(PYTEST) tests/chaos

simulate: venv  ## play random schedules of runs against a simulated Temporal (SEEDS=20000 for more, KIND=grants or migrations)
	$(BIN)/python tests/simulation/run.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(KIND),--kind $(KIND))

mutate: $(VENV)/installed-mutation  ## change one thing in the core at a time, and see whether a test fails (MODULE=ledger, or all)
	$(BIN)/python tests/mutation/run.py $(MODULE) $(if $(TESTS),--tests $(TESTS)) $(if $(AGAIN),--again)

ENDURANCE := PYTHONPATH=.:tests/support $(BIN)/python tests/endurance

chaos-long: venv  ## 1,000 runs while all is killed, filled, slowed and lost (RUNS=1000 EVERY=10)
	$(ENDURANCE)/chaos.py $(if $(RUNS),--runs $(RUNS)) $(if $(EVERY),--every $(EVERY))

soak: venv  ## an hour of starts, answers and messages (MINUTES=60)
	$(ENDURANCE)/soak.py $(if $(MINUTES),--minutes $(MINUTES))

histories: venv  ## record the runs of the replay tests anew (only while nothing is released)
	$(BIN)/python tests/replay/record.py --anew

bench: $(VENV)/installed-bench  ## compare with Temporal by hand and with peers (WORKLOAD=steer, ALL=1, RUNS=9, DATABASE=postgres, WRITE=1)
	$(BIN)/python benchmarks/run.py $(if $(ALL),--all,$(if $(WORKLOAD),--workload $(WORKLOAD))) \
		$(if $(RUNS),--runs $(RUNS)) $(if $(DATABASE),--database $(DATABASE)) $(if $(WRITE),--write docs/internals/measurements.md)

capacity: venv  ## measure what one of each thing costs, and compute what loads need (WRITE=1)
	$(BIN)/python benchmarks/run_capacity.py $(if $(WRITE),--write)

pictures: $(VENV)/installed-browser  ## take the pictures of the pages that the documentation shows (FOLDER=out/pictures takes all pages at both sizes, light and dark)
	$(if $(FOLDER),mkdir -p $(FOLDER))
	$(BIN)/python docs/pictures/take_inbox.py $(FOLDER)

.PHONY: docs
docs: $(VENV)/installed-docs  ## build the documentation as a site, into out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What the image can do beyond the bare package: agents with their providers, AG-UI, traces over OTLP,
# notifications and calendars, rules in CLIPS, and storage in a bucket.
IMAGE_EXTRAS := agents agui otel people rules s3 slack
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-annotate --upgrade --no-config \
	--custom-compile-command "make lock" --python-version 3.11 --python-platform linux
BUILD_REQUIRES := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")

lock: venv  ## write down, with their hashes, the packages that the image is made of
	$(PIP) uv==0.13.9
	$(LOCK) $(IMAGE_EXTRAS:%=--extra %) -c constraints.txt -o deploy/requirements.txt pyproject.toml
	$(BIN)/python -c '$(BUILD_REQUIRES)' | $(LOCK) -o deploy/requirements-build.txt -

manifests: venv  ## write the manifests of deploy/kubernetes anew, as Helm makes them of the chart
	$(BIN)/python tests/support/chart.py

release: venv  ## build what this commit releases, check it, and tag it (publishes nothing)
	$(BIN)/pytest tests/packaging/test_wheel.py
	$(BIN)/python deploy/release.py

clean:  ## remove what builds and tools leave behind (not .abeyance: that is your data)
	rm -rf $(VENV) build dist out *.egg-info .coverage htmlcov
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find abeyance activities api examples tests workflows -name __pycache__ -prune -exec rm -rf {} +
