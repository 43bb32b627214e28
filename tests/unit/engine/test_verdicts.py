"""The table of words: no two waits say one thing, nodes come for those alone that they end, and the page has all."""

from __future__ import annotations

import re

from agent_scheduler.engine.verdicts import LABELS, SENTENCES, WORDS, WaitReason, by_nodes
from tests.support.places import ROOT

WANT_NODES = {WaitReason.NODES, WaitReason.DEVICES, WaitReason.RELEASE, WaitReason.ADMISSION}


def test_every_wait_has_its_words_and_the_page_has_them() -> None:
    assert WORDS.keys() == set(WaitReason)
    assert [by_nodes("", each).label for each in ({"GPUShare", "NodePorts"}, ())] == ["devices", "nodes"]
    assert {wait for wait, words in WORDS.items() if words.wants_nodes} == WANT_NODES
    page = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "batch.md").read_text()))
    assert page >= {*LABELS, *(words.reason for words in WORDS.values())}
    assert page >= {words.of_group for words in WORDS.values()}
    assert SENTENCES.keys() == {"", "session", *LABELS}
