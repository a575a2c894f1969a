"""Nodes that see no file of the driver's host simulate its traces all the same: archives, which are unpacked there to a
folder of its own, and launches in its cache."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster_faults import NETWORK, Driver, calm_local, problems_of
from cluster_nodes import Node, NodeCluster, missing

EXAMPLES = Path(__file__).parents[4] / "runner" / "examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[NodeCluster]:
    """A head, which alone sees its folder, and a node."""
    if reason := missing():
        pytest.skip(reason)
    with (
        tempfile.TemporaryDirectory(prefix="elsewhere-", dir="/tmp") as name,
        NodeCluster("elsew", NETWORK, Path(name)) as nodes,
    ):
        nodes.add()
        yield nodes


def copies(node: Node) -> set[str]:
    """What the node has of the traces."""
    return set(node.inside("sh", "-c", "ls /tmp/cache/manyscale/traces 2>/dev/null; true").split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "changes"),
    [("multizone-8-design", {"sweep": {"mapping.cores_per_rank": [1, 8]}}), ("bfs-16", {"model": {"gpu": "gpumech"}})],
    ids=["detailed-level", "launches"],
)
def test_traces_that_nodes_do_not_see(cluster: NodeCluster, example: str, changes: dict[str, object]) -> None:
    content = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text()) | changes
    for name in {"path", "detail"} & set(content["workload"]):
        content["workload"][name] = str(EXAMPLES / content["workload"][name])
    study = cluster.folder / f"{example}.yaml"
    study.write_text(yaml.safe_dump(content))
    arguments = ["run", str(study), "--no-report"]
    calm = calm_local(cluster.folder, arguments).rename(cluster.folder / f"calm-{example}")
    (node,) = cluster.nodes
    before = copies(node)
    driver = Driver(cluster, arguments, cluster.folder / example)
    driver.start()
    assert driver.wait(600) == 0, driver.said
    assert problems_of(cluster.folder / example, calm) == []
    assert copies(node) > before
