"""The embedded server's table of protobuf fields is what its generator makes of the fields of Kubernetes."""

from __future__ import annotations

from tests.support import needed, protobuf_data

_VERSION = "1.36.2"


def test_the_table_is_the_generated_one() -> None:
    path = needed.CONFORMANCE / "protobuf" / f"fields-{_VERSION}.json.gz"
    needed.need(path.is_file(), f"there is no file {path}")
    table = protobuf_data.TABLE.read_text(encoding="utf-8")
    assert table == protobuf_data.render(protobuf_data.read(path), _VERSION), (
        "run python -m tests.support.protobuf_data"
    )
