"""A run on a cluster whose nodes come and go, as a script: prints what became of it as JSON. Argument: a folder."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

from manyscale.runner.predict.units import Outcome, WorkUnit
from manyscale.runner.run.execute.ray import RayExecutor
from manyscale.runner.run.store import Store

NUM_UNITS = 150
STORE_BYTES = 100 * 2**20
OTHER_NUMPY = """
import importlib.metadata
_version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.1" if name == "numpy" else _version(name)
"""


class Story:
    """Nodes that come as the run goes on, each once so many units are done."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False},
        )
        self.other = folder / "other"
        self.other.mkdir()
        (self.other / "sitecustomize.py").write_text(OTHER_NUMPY)

    def good_node(self, num_cpus: int = 1) -> Any:
        return self.cluster.add_node(num_cpus=num_cpus, object_store_memory=STORE_BYTES)

    def other_node(self) -> Any:
        path = os.pathsep.join([str(self.other), os.environ["PYTHONPATH"]])
        return self.cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, env_vars={"PYTHONPATH": path})


def unit(index: int, seconds: float) -> WorkUnit:
    return WorkUnit(f"{index:032x}", "odd_units:doubled", {"offset": index, "seconds": seconds}, {"values": "values"})


def elastic(story: Story, executor: RayExecutor, store: Store) -> dict[str, Any]:
    """Nodes are started here, since Ray wants signals; units run in a thread."""
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    outcomes: list[Outcome] = []

    def run() -> None:
        units = [unit(index, 0.1) for index in range(NUM_UNITS)]
        for outcome in executor.map(units, {"values": np.arange(5)}, store):
            outcomes.append(outcome)
            told.put(len(outcomes))

    running = threading.Thread(target=run)
    running.start()
    while not executor.standing()["waiting"]:  # the first node comes when it is waited for
        running.join(0.1)
    waited = executor.standing()["waiting"]
    first = story.good_node()
    told.get()
    story.other_node()
    story.good_node()
    while told.get() < NUM_UNITS // 2:
        pass
    story.cluster.remove_node(first, allow_graceful=False)
    running.join()
    end = time.monotonic() + 60  # Ray may notice after the run that a node is gone
    while not any(node["state"] == "gone" for node in executor.standing()["nodes"]) and time.monotonic() < end:
        time.sleep(0.1)
        executor._nodes.look(ray, at_once=True)
    return {
        "waited": waited,
        "errors": [outcome.error for outcome in outcomes],
        "keys": len({outcome.key for outcome in outcomes}),
        "nodes": executor.standing()["nodes"],
    }


def main() -> None:
    folder = Path(sys.argv[1])
    story = Story(folder)
    with closing(RayExecutor(address=story.cluster.address, num_workers=8)) as executor:
        found = elastic(story, executor, Store(folder / "units"))
    print(json.dumps(found), flush=True)
    for node in story.cluster.list_all_nodes():
        node.kill_all_processes(check_alive=False, allow_graceful=False)
    os._exit(0)  # Ray's own end waits for those that are gone


if __name__ == "__main__":
    main()
