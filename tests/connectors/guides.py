"""The how-to guides whose commands need the driver of a connector, which `make test` does not install."""

from tests.support.doc_blocks import ROOT

GUIDES = (ROOT / "docs/how-to/read-a-table.md", ROOT / "docs/how-to/upsert.md")
