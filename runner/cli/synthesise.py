"""``manyscale synthesise``: a step of training a model, made from its shape."""

from __future__ import annotations

import argparse

from manyscale.runner.cli.figures import add_json, show
from manyscale.runner.cli.options import add_output


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", choices=["transformer"], help="kind of model: transformer (a decoder of GPT's kind)")
    for name, metavar, text in (
        ("layers", "L", "layers"),
        ("hidden", "H", "size of a token's vector"),
        ("heads", "A", "attention heads of a layer"),
        ("sequence", "S", "tokens of a sequence"),
        ("global-batch", "B", "sequences of a step"),
    ):
        parser.add_argument(f"--{name}", type=int, required=True, metavar=metavar, help=text)
    for name, metavar, default, text in (
        ("micro-batch", "B", 1, "sequences that pass the layers at a time"),
        ("vocabulary", "V", 50257, "different tokens"),
        ("tp", "N", 1, "tensor parallelism: GPUs that share each layer"),
        ("pp", "N", 1, "pipeline parallelism: stages"),
        ("interleaved", "V", 1, "pieces of a stage's layers that take turns"),
    ):
        parser.add_argument(
            f"--{name}", type=int, default=default, metavar=metavar, help=f"{text} (default: {default})"
        )
    parser.add_argument(
        "--dp", type=int, metavar="N",
        help="data parallelism: copies of the model (default: 1, or what tp and pp leave of --gpus)",
    )  # fmt: skip
    parser.add_argument("--gpus", type=int, metavar="N", help="all GPUs, in place of --dp")
    parser.add_argument("--gpu-memory", metavar="SIZE", help="refuse a step that needs more of a GPU, such as '80 GB'")
    parser.add_argument(
        "--recompute", choices=["none", "selective", "full"], default="none",
        help="what the backward pass computes again: nothing, the core of attention, or layers (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--zero", type=int, choices=[0, 1, 2, 3], default=0,
        help="what data parallelism shards: 1 the optimiser's states, 2 gradients, 3 parameters, too (default: 0)",
    )  # fmt: skip
    parser.add_argument("--sequence-parallel", action="store_true", help="divide the rest of a layer by tokens")
    parser.add_argument("--flash-attention", action="store_true", help="attention is one kernel")
    parser.add_argument("--precision", choices=["fp16", "bf16"], default="fp16", help="(default: fp16)")
    parser.add_argument(
        "--target", required=True, metavar="NAME", help="machine whose GPUs are meant: a shipped name or a YAML file"
    )
    parser.add_argument(
        "--rows", type=int, metavar="N",
        help="operations of a rank at most: of more, those of layers are joined (default: 2000; of few ranks more)",
    )  # fmt: skip
    add_output(parser, None)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Make the workload, write it and say what it is."""
    from inspect import signature

    from manyscale.runner.api.synthesis import synthesise

    names = [name for name in signature(synthesise).parameters if name not in ("model", "output")]
    found = synthesise(options.model, options.output, **{name: getattr(options, name) for name in names})
    show(options, found)
    print(found.summary())
    for note in found.notes:
        print(f"note: {note}")
    print(f"workload: {found.path}")
    return 0
