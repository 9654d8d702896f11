# Every target sets up .venv first; only Python 3.11+, make and the package registries are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint format setup clean

demo: setup  ## the loop over the starter suite on the emulator: planted bugs with their repairs, then a model's real answers
	@echo "--- bugs planted in our own solutions, found and repaired turn by turn"
	$(BIN)/ptxmend run --model recorded:planted --suite starter --turns 8
	@echo "--- answers that a model really gave"
	$(BIN)/ptxmend run --model recorded:demo --suite starter --turns 8

test: setup  ## the tests that need no GPU and no key
	$(BIN)/python -m pytest -q -n auto -m "not gpu and not slow"

lint: setup  ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "ptxmend needs Python 3.11 or newer; found $$($(PYTHON) --version). Say PYTHON=/path/to/python3.11."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache
