"""What commands print for programs."""

from __future__ import annotations

from agent_scheduler.cli.outputs import dumped


def test_keys_keep_their_order_and_letters_are_written_as_they_are() -> None:
    shown = {"b": "ä→", "a": [1, None]}
    assert dumped(shown, "json") == '{\n "b": "ä→",\n "a": [\n  1,\n  null\n ]\n}\n'
    assert dumped(shown, "yaml") == "b: ä→\na:\n- 1\n- null\n"
