"""The examples of README.md work, and the page names all settings."""

from __future__ import annotations

import re

import pytest

from embedded_kubernetes import EmbeddedCluster

from ..places import README

pytest_plugins = ["pytester"]

PAGE = README.read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
CONFTEST, TESTS = re.findall(r"```python\n(.*?)```", PAGE.split("## With pytest")[1], re.DOTALL)[:2]
SCRIPTS = [each for each in EXAMPLES if each not in (CONFTEST, TESTS)]


#: pytest without the plugins that these tests themselves use.
OPTIONS = ("--strict-markers", *(f"-pno:{name}" for name in ("cacheprovider", "asyncio", "xdist", "hypothesispytest")))


@pytest.mark.wide
@pytest.mark.parametrize("number", range(len(SCRIPTS)))
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_an_example_runs(number: int) -> None:
    exec(compile(SCRIPTS[number], f"README.md, example {number + 1}", "exec"), {})


def test_the_example_of_the_fixtures_runs(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess(*OPTIONS).assert_outcomes(passed=2)


def test_the_mark_of_a_function_goes_before_that_of_its_module(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import pytest\n"
        "pytestmark = pytest.mark.embedded_cluster(nodes=1, node_cpu=2)\n"
        "@pytest.mark.embedded_cluster(nodes=3)\n"
        "def test_it(embedded_cluster):\n"
        "    assert (embedded_cluster.nodes, embedded_cluster.node_cpu) == (3, 2)\n"
    )
    pytester.makeconftest(CONFTEST)
    pytester.runpytest_inprocess(*OPTIONS).assert_outcomes(passed=1)


def test_everything_of_a_cluster_is_documented() -> None:
    table = PAGE.split("| Of a cluster | |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name.partition("(")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    options = EmbeddedCluster.__dataclass_fields__
    own = {name for name in vars(EmbeddedCluster) if not name.startswith("_") and name not in options}
    assert named == own | {"token"}
