PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
# Tests start dozens of processes: what one of them compiled the others load.
TESTED = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python
INSTALL = $(if $(UV),$(UV) pip install --python $(BIN)/python,$(BIN)/python -m pip install) --quiet

.PHONY: demo test test-langgraph lint format browser docs bench clean

demo: $(VENV)/demo.stamp
	@$(BIN)/python examples/demo.py

test: $(VENV)/test.stamp
	@$(TESTED) -m pytest -n logical --dist worksteal $(ARGS)

test-langgraph: $(VENV)/test.stamp
	@$(TESTED) -m tests.langgraph_suite.run $(ARGS)

lint: $(VENV)/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=examples $(BIN)/mypy --strict examples/*.py

format: $(VENV)/lint.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

browser: $(VENV)/browser.stamp
	@$(TESTED) -m pytest tests/browser tests/notebooks $(ARGS)

docs: $(VENV)/docs.stamp
	@NO_MKDOCS_2_WARNING=1 STATEKIT_DOCS_OUTPUTS=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

bench: $(VENV)/test.stamp
	@$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/demo.stamp: WHAT = -e .
$(VENV)/test.stamp: WHAT = -e '.[all]' --group test --group docs
$(VENV)/browser.stamp: WHAT = -e '.[all,notebook]' --group test --group browser --group docs
$(VENV)/docs.stamp: WHAT = -e '.[all,notebook]' --group docs --group notebooks
$(VENV)/lint.stamp: WHAT = -e '.[all]' --group test --group lint

$(VENV)/%.stamp: pyproject.toml | $(VENV)/made
	$(INSTALL) $(WHAT)
	@touch $@

# pip learned --group in 25.1; the one that comes with Python may be older.
$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)$(if $(UV), || $(UV) venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV))
	$(INSTALL) --upgrade 'pip>=25.1'
	@touch $@
