# make run    install into .venv, train a GPT on tiny Shakespeare and let it write
# make test   install what the tests need and run them all, with empty caches as on a machine that has never run engram
# make test-fast    what a developer runs between two edits: no browser, no downloads, no whole runs
# make test-alone   every file of tests in a process of its own
# make test-random  all tests in a random order, SEED=1
# make faults kill runs at 300 random moments (KILLS=300), fill their disk, move their clock: see docs/reliability.md
# make fuzz   look for input that breaks something, for 20 minutes or for MINUTES=60
# make lock   write requirements.lock anew: the newest versions that pyproject.toml allows, with their hashes
# make audit  ask whether the locked versions have known vulnerabilities
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
KILLS ?= 300
MINUTES ?= 20
SEED ?= 1
WORKERS ?= 3
# caches that begin empty and are removed in the end, whatever happens
FRESH := caches=$$(mktemp -d) && trap 'rm -rf "$$caches"' EXIT && export ENGRAM_DATA=$$caches/engram \
	NUMBA_CACHE_DIR=$$caches/numba HF_HOME=$$caches/huggingface XDG_CACHE_HOME=$$caches TORCHINDUCTOR_CACHE_DIR=$$caches/torch
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist loadgroup

.PHONY: run test test-fast test-alone test-random faults fuzz lock audit lint lint-js browser bench readme clean

run: $(VENV)/installed
	$(BIN)/engram run gpt

test: lint browser
	@$(FRESH) && $(PYTEST)

test-fast: $(VENV)/installed-test
	$(PYTEST) -m 'not (slow or download)' $(addprefix --ignore=tests/,web laws faults fuzz golden lab instruments) $(addprefix --ignore-glob=,*recipe* *feature_extractor*)

test-alone: $(VENV)/installed-test browser
	@$(FRESH) && find tests -name 'test_*.py' | sort | xargs -n 1 -P $(WORKERS) sh -c '$(BIN)/pytest "$$0" || exit 1'

test-random: $(VENV)/installed-test browser
	@$(FRESH) && $(PYTEST) --random-order $(SEED)

fuzz: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz $(MINUTES)

lock: $(VENV)/installed-release
	@printf '%s\n' \
		'# Every package that engram needs to run, in the versions it is released with, and the sha256 of their files.' \
		'# Install exactly these:  pip install --require-hashes -r requirements.lock && pip install --no-deps engram' \
		'# `make lock` writes this file anew, `make audit` asks whether these versions have known vulnerabilities.' \
		> $(VENV)/requirements.lock
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet --upgrade \
		--no-header --no-emit-index-url --no-emit-find-links --annotation-style line >> $(VENV)/requirements.lock
	mv $(VENV)/requirements.lock requirements.lock

audit: $(VENV)/installed-release
	@$(BIN)/pip-audit --strict --disable-pip --require-hashes --requirement requirements.lock 2> $(VENV)/audit; code=$$?; \
		tail -n 1 $(VENV)/audit; test $$code = 0 || grep -q 'known vulnerabilit' $(VENV)/audit || \
		echo 'The service that knows of vulnerabilities was not reached, or does not know a package: nothing is certain.'; \
		exit $$code

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# the JavaScript of the lab; needs Node
lint-js:
	npm install --no-audit --no-fund --silent
	npm run --silent lint

# some faults need root and libfaketime; they are left out with a sentence where they cannot be provoked
faults: $(VENV)/installed-test
	@ls /usr/lib*/*/faketime/libfaketime.so.1 > /dev/null 2>&1 || \
		{ command -v apt-get > /dev/null && apt-get install -y -qq libfaketime > /dev/null; } || true
	$(BIN)/python -m tests.faults --kills $(KILLS)

bench: $(VENV)/installed-test
	@for name in $$($(BIN)/engram bench --json | $(BIN)/python -c "import json, sys; print(*(b['name'] for b in json.load(sys.stdin)))"); do \
		echo; $(BIN)/engram bench $$name || exit 1; done

readme: $(VENV)/installed-test
	$(BIN)/python -m tests.test_readme

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# the pages of the lab are tested in a real browser
browser:
	@test -n "$$ENGRAM_BROWSER" && exit; \
	for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v $$name > /dev/null && exit; done; \
	{ command -v apt-get > /dev/null && apt-get update -qq && \
		{ apt-get install -y -qq chromium-headless-shell || apt-get install -y -qq chromium; } > /dev/null; } || \
	echo "There is no Chromium here: tests in a browser are left out."

$(VENV)/installed-test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@# torchattacks asks for torchvision, which it does not need here and which brings another torch
	$(BIN)/python -m pip install --quiet --no-deps 'torchattacks>=3.5,<3.6'
	touch $(VENV)/installed $@

$(VENV)/installed-release: Makefile
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'uv>=0.12,<0.14' 'pip-audit>=2.10,<2.11'
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
