"""Each recipe of docs/editors.md starts the agent by a command that is there."""

import json

import pytest
from deployment import COMMANDS
from doc_snippets import Block, blocks
from running_server import ROOT

RECIPES = blocks((ROOT / "docs" / "editors.md").read_text())


@pytest.mark.parametrize("recipe", RECIPES, ids=[f"{block.language}-{block.line}" for block in RECIPES])
def test_a_recipe_starts_the_agent(recipe: Block) -> None:
    assert "opensession" in recipe.code and "acp" in COMMANDS
    assert '"acp"' in recipe.code or "opensession acp" in recipe.code
    if recipe.language == "json":
        assert json.loads(recipe.code)
