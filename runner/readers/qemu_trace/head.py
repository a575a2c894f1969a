"""How a trace of the QEMU plugin begins."""

from typing import Final

MAGIC: Final = b"MSQEMU1\0"
