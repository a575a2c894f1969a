"""Dimemas configurations as target machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from manyscale.models.machine import Machine
from manyscale.models.network.collectives.call import CollectiveCall
from manyscale.models.network.collectives.formulas import Formula
from manyscale.models.workload.quantities import MOST_BYTES
from manyscale.runner.errors import UserError
from manyscale.runner.study import parse_study
from manyscale.runner.study.targets import resolve_target

DATA = Path(__file__).parents[2] / "data" / "dimemas"

WAN = '"wide area network information" {"", 1, 0, 4, 0.0, 0.0, 1};;'
ENVIRONMENT = '"environment information" {"cluster", 0, "", 4, 1250.0, 3, 3};;'
NODES = '"multi node information" {0, 4, "", 2, 1.0, 0.000001, 3000.0, 5, 1, 2, 0.00001, 3, 4, 0.0};;'
FILL = '"predefined mapping information" {"FILL_NODES"};;'
FILES = '"configuration files" {"", "", "", ""};;'


@pytest.fixture
def machine(tmp_path):
    """``machine(*lines, **study)``: the machine of a configuration with these lines."""

    def of(*lines, **study) -> Machine:
        path = tmp_path / "toy.cfg"
        path.write_text("#DIMEMAS_CONFIGURATION\n" + "\n".join(lines) + "\n")
        content = {"workload": {"path": "-"}, "target": str(path), **study}
        return resolve_target(parse_study(content, "test"))[0]

    return of


def formula(machine: Machine, kind: str) -> Formula:
    found = machine.network.collectives.choice(CollectiveCall(kind, 4, send_bytes=8, receive_bytes=8))
    assert isinstance(found, Formula)
    return found


def test_everything_that_a_machine_takes(machine):
    found = machine(WAN, ENVIRONMENT, NODES, FILL, FILES)
    network = found.network
    assert (found.name, found.num_nodes, found.node.num_cores, found.node.frequency_hz) == ("cluster", 4, 2, None)
    assert (network.latency_ps, network.ps_per_byte) == (10_000_000, 1e12 / (1250 * 2**20))
    assert (network.intra_node.latency_ps, network.intra_node.ps_per_byte) == (1_000_000, 1e12 / (3000 * 2**20))
    assert network.self_route == network.intra_node
    assert (network.envelope_bytes, network.eager_threshold_bytes) == (0, MOST_BYTES)
    inter, intra = network.dimemas.inter_node, network.dimemas.intra_node
    assert (inter.input_links, inter.output_links, inter.buses) == (3, 4, 3)
    assert (intra.input_links, intra.output_links, intra.buses) == (1, 2, 5)
    assert str(network.collectives) == "dimemas"
    assert formula(found, "reduce").fan_in == "constant"
    assert "toy.cfg" in found.sources["network"]


def test_a_bandwidth_of_zero_is_instantaneous(machine):
    found = machine(ENVIRONMENT.replace("1250.0", "0.0"), NODES.replace("3000.0", "0.0"))
    assert found.network.ps_per_byte == found.network.intra_node.ps_per_byte == 0.0


def test_nodes_one_by_one_in_each_of_their_forms(machine):
    of_14 = '"node information" {0, 7, "", 2, 1.0, 0.000001, 3000.0, 2, 1, 0, 0.00001, 3, 4, 0.0};;'
    of_13 = '"node information" {0, "", 2, 1.0, 0.000001, 3000.0, 2, 1, 0, 0.00001, 3, 4, 0.0};;'
    of_11 = '"node information" {0, 9, "", 2, 3, 4, 0.000001, 0.00001, 1.0, 3000.0, 0.0};;'
    found = machine(ENVIRONMENT, of_14, of_13, of_11, of_13)
    intra = found.network.dimemas.intra_node
    assert (intra.input_links, intra.output_links, intra.buses) == (1, 0, 2)
    assert found.network.dimemas.inter_node.output_links == 4


def test_ratios_of_cpus(machine):
    half = NODES.replace("{0, 4,", "{0, 2,").replace("2, 1.0,", "2, 0.5,")
    assert machine(ENVIRONMENT, half, half.replace("0.5", "1.0")).network.dimemas.cpu_ratios == (0.5, 0.5, 1.0, 1.0)
    assert machine(ENVIRONMENT, NODES.replace("2, 1.0,", "2, 2.0,")).network.dimemas.cpu_ratios == (2.0,)


@pytest.mark.parametrize(("model", "name"), [(1, "constant"), (2, "linear"), (3, "logarithmic")])
def test_the_model_of_collectives(machine, model, name):
    found = machine(ENVIRONMENT.replace("3, 3}", f"3, {model}}}"), NODES)
    for kind in ("barrier", "allreduce", "exscan", "ibcast"):
        assert (formula(found, kind).fan_in, formula(found, kind).fan_out) == (name, name)
    assert formula(found, "reduce").fan_in == "constant"


def test_a_file_of_collectives(machine, tmp_path):
    (tmp_path / "collectives.txt").write_text(
        "# comment\n\nMachine policy: 0 FIFO\nMachine globalop: 0 11 LIN 2MAX CTE MIN\n"
        "External globalop: 11 LOG MAX LOG MAX\n9 0 MEAN LOG S+R 0.0\nFlight time: 0 0.0\n"
    )
    found = machine(ENVIRONMENT, NODES, FILES.replace('"", "", "", ""', '"", "", "collectives.txt", ""'))
    allreduce, alltoallv = formula(found, "allreduce"), found.network.collectives.rules
    assert (allreduce.fan_in, allreduce.fan_in_size) == ("linear", "twice-max")
    assert (allreduce.fan_out, allreduce.fan_out_size) == ("constant", "min")
    other = next(rule.formula for rule in alltoallv if "alltoallv" in rule.collectives)
    assert (other.fan_in, other.fan_in_size, other.fan_out, other.fan_out_size) == (
        "none",
        "mean",
        "logarithmic",
        "sum",
    )
    assert formula(found, "barrier").fan_in == "logarithmic"
    assert "leaves out: collectives between machines, flight times" in found.description


def test_what_is_inert_is_named(machine, tmp_path):
    (tmp_path / "random.cfg").write_text('"processor_ratio_dist" NORMAL 0.0 0.0\n')
    found = machine(
        WAN.replace("0.0, 0.0, 1}", "0.0, 10.0, 1}"),
        ENVIRONMENT,
        NODES.replace("4, 0.0}", "4, 0.01}"),
        FILES.replace('"", "", "", ""', '"", "disks", "", "random.cfg"'),
        '"file system parameters" {0.0, 0.0, 8.0, 0, 1.0};;',
        '"modules information" {50000001, 1, 1.0};;',
    )
    assert found.description.endswith("it leaves out: network between machines, latency between machines, file system")


def test_comments_are_no_records(machine):
    comment = '/* notes\n"environment information" {nothing};;\n*/\n// "node information" {0};;'
    assert machine(comment, ENVIRONMENT, NODES).num_nodes == 4


def test_a_study_may_replace_keys(tmp_path, machine):
    machine(ENVIRONMENT, NODES)
    target = {
        "name": str(tmp_path / "toy.cfg"),
        "network": {"eager_threshold": "64 KiB", "dimemas": {"cpu_ratios": [3.0]}},
    }
    found = machine(ENVIRONMENT, NODES, target=target)
    assert found.network.eager_threshold_bytes == 65536
    assert found.network.dimemas.cpu_ratios == (3.0,)
    assert found.network.dimemas.inter_node.input_links == 3


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            '"predefined mapping information" {"1 TASKS_PER_NODE"};;',
            r"mapping: \{placement: block, ranks_per_node: 1\}",
        ),
        ('"predefined mapping information" {"x.dim", "INTERLEAVED"};;', r"task i on node i modulo the number of nodes"),
        ('"mapping information" {"x.dim", 3, [3] {0,1,0}};;', r"mapping: \{placement: \[0, 1, 0\]\}"),
    ],
)
def test_a_mapping_that_the_study_does_not_repeat_is_refused(machine, line, hint):
    with pytest.raises(UserError, match=rf"toy.cfg:4: the configuration places its tasks; write it .*{hint}"):
        machine(ENVIRONMENT, NODES, line)
    assert machine(ENVIRONMENT, NODES, line, mapping={"ranks_per_node": 1}).num_nodes == 4  # the study decides


@pytest.mark.parametrize("words", ["FILL_NODES", "2 TASKS_PER_NODE"])
def test_the_default_mapping_needs_no_word(machine, words):
    assert machine(ENVIRONMENT, NODES, f'"predefined mapping information" {{"{words}"}};;').num_nodes == 4


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([WAN.replace("1, 0, 4", "2, 0, 4")], r"toy.cfg:2: 2 machines; only one can be modelled"),
        ([ENVIRONMENT, NODES, ENVIRONMENT], r":4: a second machine"),
        ([ENVIRONMENT, NODES.replace("{0, 4,", "{0, 3,")], r"toy.cfg: 4 nodes, of which 3 are described"),
        ([NODES], r"toy.cfg: no record 'environment information'"),
        ([ENVIRONMENT, NODES.replace("1.0, 0.000001", "-1.0, 0.000001")], r":3: a ratio of CPUs of -1"),
        ([ENVIRONMENT, NODES.replace(", 0.0}", "}")], r":3: 13 fields; this record has 14"),
        ([ENVIRONMENT, NODES.replace("1.0", "fast")], r":3: a field of 'multi node information' is .* no number"),
        ([ENVIRONMENT.replace("3, 3}", "3, 4}"), NODES], r":2: the model of collectives is not 1, 2 or 3"),
        ([ENVIRONMENT, NODES.replace("{0, 4,", "{0, 2,"), NODES.replace("{0, 4,", "{0, 2,").replace("3000.0", "1.0")],
         r":4: a node whose intra bandwidth differs"),
        ([ENVIRONMENT, NODES, FILES.replace('{""', '{"sched"')], r":4: a scheduler file"),
        ([ENVIRONMENT, NODES, FILES.replace('"", ""}', '"none.txt", ""}')], r":4: the file 'none.txt' does not exist"),
        ([ENVIRONMENT, NODES, '"modules information" {60000019, 5, 2.0};;'], r':4: .*regions: \{"60000019:5": 2.0\}'),
        ([ENVIRONMENT, NODES, '"node info" {1};;'], r":4: unknown record 'node info'; known are wide area"),
        ([ENVIRONMENT, NODES, "hello"], r":4: 'hello' is no record"),
        ([ENVIRONMENT, NODES, '"predefined mapping information" {"RANDOM"};;'], r":4: unknown mapping 'RANDOM'"),
        ([ENVIRONMENT, NODES, '"mapping information" {"x", 2, [3] {0,1,0}};;'], r":4: the mapping lists 3 nodes for 2"),
    ],
)  # fmt: skip
def test_what_cannot_be_modelled_or_read_is_refused(machine, lines, message):
    with pytest.raises(UserError, match=message):
        machine(*lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Machine policy: 0 RR\n", r"c.txt:1: communication policy 'RR'; only FIFO"),
        ("Machine globalop: 0 99 LOG MAX LOG MAX\n", r"c.txt:1: unknown collective 99"),
        ("Machine globalop: 1 1 LOG MAX LOG MAX\n", r"c.txt:1: machine 1; there is only machine 0"),
        ("\nMachine globalop: 0 1 TREE MAX LOG MAX\n", r"c.txt:2: TREE MAX: models are 0, CTE, CT, LIN, LOG"),
        ("Quantum size\n", r"c.txt:1: 'Quantum size' is no line of a file of collectives"),
    ],
)
def test_what_is_wrong_in_a_file_of_collectives(machine, tmp_path, text, message):
    (tmp_path / "c.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        machine(ENVIRONMENT, NODES, FILES.replace('"", "", "", ""', '"", "", "c.txt", ""'))


def test_a_random_machine_is_refused(machine, tmp_path):
    (tmp_path / "random.cfg").write_text('"processor_ratio_dist" NORMAL 0.0 0.1\n')
    with pytest.raises(UserError, match=r"toy.cfg:4: a sensitivity file with distributions"):
        machine(ENVIRONMENT, NODES, FILES.replace('"", "", "", ""', '"", "", "", "random.cfg"'))


def test_an_old_configuration_is_refused_by_name(tmp_path):
    path = tmp_path / "old.cfg"
    path.write_text('SDDFA\n/*\n*/ ;;\n#1:\n"environment information" {};;\n')
    with pytest.raises(UserError, match=r"old.cfg:1: does not start with #DIMEMAS_CONFIGURATION: .* DimemasUpdateCFG"):
        resolve_target(parse_study({"workload": {"path": "-"}, "target": str(path)}, "test"))


@pytest.mark.parametrize("path", sorted(DATA.glob("*.cfg")), ids=lambda path: path.stem)
def test_all_configurations_of_the_tests_load(path):
    found, _ = resolve_target(parse_study({"workload": {"path": "-"}, "target": str(path)}, "test"))
    assert found.num_nodes >= 1
