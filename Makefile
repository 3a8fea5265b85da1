# make run    install into .venv, train a GPT on tiny Shakespeare and let it write
# make test   install what the tests need and run them all
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: run test lint browser bench readme clean

run: $(VENV)/installed
	$(BIN)/engram run gpt

test: lint browser
	$(BIN)/pytest -n 2 --dist loadgroup

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
	@command -v chromium chromium-browser google-chrome google-chrome-stable > /dev/null || test -n "$$ENGRAM_BROWSER" || \
		{ command -v apt-get > /dev/null && apt-get update -qq && apt-get install -y -qq chromium > /dev/null; } || \
		echo "There is no Chromium here: tests in a browser are left out."

$(VENV)/installed-test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@# torchattacks asks for torchvision, which it does not need here and which brings another torch
	$(BIN)/python -m pip install --quiet --no-deps 'torchattacks>=3.5,<3.6'
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
