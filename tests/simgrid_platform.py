"""The platform on which SimGrid is the peer of several tests: contention-free, as the shipped traces' references.

A full mesh of private links, 10 us and 1.25 GB/s a route, 5 us to oneself, and every correction factor off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

CONTENTION_FREE: Final = (
    *("--cfg=smpi/host-speed:1Gf", "--cfg=network/model:CM02", "--cfg=network/bandwidth-factor:1"),
    *("--cfg=network/latency-factor:1", "--cfg=network/TCP-gamma:0", "--cfg=network/weight-S:0"),
    "--cfg=network/crosstraffic:0",
)


def write_platform(folder: Path, num_ranks: int) -> list[str]:
    """Write platform.xml and hosts.txt; the arguments of smpirun that name them."""
    hosts = "".join(f'<host id="n{i}" speed="1Gf"/>\n' for i in range(num_ranks))
    links = "".join(
        f'<link id="{name}" bandwidth="1.25GBps" latency="{us}us" sharing_policy="FATPIPE"/>\n'
        for name, us in (("net", 10), ("self", 5))
    )
    routes = "".join(
        f'<route src="n{i}" dst="n{j}"><link_ctn id="{"self" if i == j else "net"}"/></route>\n'
        for i in range(num_ranks)
        for j in range(i, num_ranks)
    )
    (folder / "platform.xml").write_text(
        "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
        f'<platform version="4.1"><zone id="w" routing="Full">\n{hosts}{links}{routes}</zone></platform>\n'
    )
    (folder / "hosts.txt").write_text("".join(f"n{i}\n" for i in range(num_ranks)))
    return ["-np", str(num_ranks), "-platform", "platform.xml", "-hostfile", "hosts.txt"]
