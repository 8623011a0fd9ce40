"""Every setting of a method stands on its page, or on a page that it links to."""

from __future__ import annotations

import dataclasses
import re

import pytest

from doc_pages import DOCS
from fedcohort.protocol import registry

LINK = re.compile(r"\]\(([^)#:]+\.md)")


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_stands_on_the_methods_page_or_on_one_that_it_links_to(name):
    page = DOCS / "methods" / f"{name}.md"
    text = page.read_text("utf-8")
    linked = [page.parent / link for link in set(LINK.findall(text))]
    every = "".join([text, *(p.read_text("utf-8") for p in linked if p.is_file())])
    settings = [f.name for f in dataclasses.fields(registry.find(name).settings)]
    assert [s for s in settings if not re.search(rf"`{s}[`:]", every)] == []
