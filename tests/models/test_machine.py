"""Machines: immutable, every number with its unit, every part with its source."""

from __future__ import annotations

import copy

import pytest
from pydantic import ValidationError

from manyscale.models.machine import Machine, Network, ideal_network
from manyscale.models.network.collectives.rules import CollectiveRules
from manyscale.models.network.flow.parameters import Flow

LINK = {"latency": "1 us", "bandwidth": "1 GB/s"}
CONTENT = {
    "schema": 1,
    "name": "tiny",
    "description": "made up",
    "nodes": 3,
    "node": {
        "sockets": 2,
        "cores_per_socket": 4,
        "frequency": "2.6 GHz",
        "memory": "1 GiB",
        "caches": {"L1D": {"size": "32 KiB"}},
    },
    "network": {
        "latency": "1.5 us", "bandwidth": "1.25 GB/s", "envelope": "16 B", "eager_threshold": "64 KiB",
        "transfer_start": "match", "collectives": "mpich", "intra_node": LINK, "self": LINK,
    },
    "sources": {"nodes": "x", "node": "y", "network": "z"},
}  # fmt: skip
OPTIONAL = [("node", "memory"), ("node", "frequency"), ("node", "caches")]


def changed(path: tuple[str, ...], *values: object) -> dict:
    """CONTENT with the key at ``path`` set to the value, or left out if none is given."""
    content = copy.deepcopy(CONTENT)
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    for value in values:
        inner[path[-1]] = value
    return content


def paths(content: dict, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in content.items():
        found.append((*above, key))
        if isinstance(value, dict):
            found += paths(value, (*above, key))
    return found


def test_values_are_stored_in_the_units_of_their_names():
    machine = Machine.model_validate(CONTENT)
    assert (machine.num_nodes, machine.node.num_cores, machine.num_cores) == (3, 8, 24)
    assert machine.node.frequency_hz == 2.6e9
    assert machine.node.memory_bytes == 2**30
    assert machine.node.caches["L1D"].size_bytes == 32768
    assert machine.node.caches["L1D"].shared_by_cores == 1
    assert machine.network.latency_ps == 1_500_000
    assert machine.network.ps_per_byte == 800.0
    assert machine.network.eager_threshold_bytes == 65536
    assert machine.network.self_route.ps_per_byte == 1000.0


@pytest.mark.parametrize(
    "path", [path for path in paths(CONTENT) if path not in OPTIONAL and path[-1] != "L1D"], ids=".".join
)
def test_every_key_is_needed(path):
    with pytest.raises(ValidationError):
        Machine.model_validate(changed(path))


@pytest.mark.parametrize("path", OPTIONAL, ids=".".join)
def test_some_keys_are_not_needed(path):
    Machine.model_validate(changed(path))


@pytest.mark.parametrize(
    "above", [(), ("node",), ("network",), ("network", "self"), ("node", "caches", "L1D")], ids=str
)
def test_unknown_keys_are_refused(above):
    content = copy.deepcopy(CONTENT)
    inner = content
    for key in above:
        inner = inner[key]
    inner["latencyy"] = "1 us"
    with pytest.raises(ValidationError, match="latencyy"):
        Machine.model_validate(content)


WITH_UNITS = [
    path
    for path in paths(CONTENT)
    if path[-1] in ("latency", "bandwidth", "envelope", "eager_threshold", "frequency", "memory", "size")
]


@pytest.mark.parametrize("path", WITH_UNITS, ids=".".join)
@pytest.mark.parametrize("value", [5, "5", "5 parsec", "-5 s", None])
def test_a_bare_number_or_a_foreign_unit_is_refused(path, value):
    if path in (("node", "memory"), ("node", "frequency")) and value is None:
        return  # not known
    with pytest.raises(ValidationError, match=path[-1]):
        Machine.model_validate(changed(path, value))


@pytest.mark.parametrize("path", [("nodes",), ("node", "sockets"), ("node", "cores_per_socket")], ids=".".join)
@pytest.mark.parametrize("value", [0, -1, 1.0, "1", True])
def test_counts_are_positive_integers(path, value):
    with pytest.raises(ValidationError):
        Machine.model_validate(changed(path, value))


@pytest.mark.parametrize("part", ["nodes", "node", "network"])
def test_every_part_has_a_source(part):
    with pytest.raises(ValidationError, match=f"no source is given for {part}"):
        Machine.model_validate(changed(("sources", part)))


def test_machines_are_immutable():
    machine = Machine.model_validate(CONTENT)
    with pytest.raises(ValidationError):
        machine.network.latency_ps = 1


def test_ideal_network_keeps_the_protocol_only():
    network = Machine.model_validate(CONTENT).network
    ideal = ideal_network(network)
    for route in (ideal, ideal.intra_node, ideal.self_route):
        assert (route.latency_ps, route.ps_per_byte) == (0, 0.0)
    assert (ideal.envelope_bytes, ideal.eager_threshold_bytes, ideal.transfer_start) == (16, 65536, "match")
    assert network.latency_ps == 1_500_000


def test_a_network_tells_all_that_it_holds():
    """What keys of work units are made of: collectives and blocks are part of it, as they are given or validated."""
    given = {"collectives": {"preset": "openmpi"}, "flow": {"weight": "8 B"}}
    validated = {"collectives": CollectiveRules(preset="openmpi"), "flow": Flow(weight="8 B")}
    for blocks in (given, validated):
        told = Network.model_validate({**CONTENT["network"], **blocks}).model_dump(mode="json")
        assert told["collectives"]["preset"] == "openmpi"
        assert told["flow"] != Network.model_validate(CONTENT["network"]).model_dump(mode="json").get("flow")


@pytest.mark.parametrize(
    ("part", "key", "number", "told"),
    [(None, "nodes", 1 << 32, "4,294,967,296 nodes"), ("node", "cores_per_socket", 1 << 31, "4,294,967,296 cores")],
)
def test_more_than_a_model_can_keep_is_refused(part, key, number, told):
    content = copy.deepcopy(CONTENT)
    (content[part] if part else content)[key] = number
    with pytest.raises(ValidationError, match=told):
        Machine.model_validate(content)
