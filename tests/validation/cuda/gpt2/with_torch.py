"""The same model and steps by PyTorch on the CPU: ``python with_torch.py CASE.npz RESULT.npz``, by any Python that has
PyTorch and NumPy. CASE has the parameters by name, ``tokens`` (2, B, T), ``heads``, ``vocabulary``, ``steps``
and ``bf16``."""

import sys

import numpy as np
import torch
from torch.nn import functional


def forward(p, tokens, heads):
    """Logits over the padded vocabulary."""
    batch, length = tokens.shape
    x = p["wte"][tokens] + p["wpe"][:length]
    wide = x.shape[-1]
    hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    for layer in range(p["qkvw"].shape[0]):
        of = {name: each[layer] for name, each in p.items() if name not in ("wte", "wpe", "lnfw", "lnfb")}
        normal = functional.layer_norm(x, (wide,), of["ln1w"], of["ln1b"])
        query, key, value = functional.linear(normal, of["qkvw"], of["qkvb"]).split(wide, -1)
        query, key, value = (t.view(batch, length, heads, -1).transpose(1, 2) for t in (query, key, value))
        scores = query @ key.transpose(-2, -1) * (wide // heads) ** -0.5
        mixed = functional.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ value
        mixed = mixed.transpose(1, 2).reshape(batch, length, wide)
        x = x + functional.linear(mixed, of["attprojw"], of["attprojb"])
        normal = functional.layer_norm(x, (wide,), of["ln2w"], of["ln2b"])
        gelu = functional.gelu(functional.linear(normal, of["fcw"], of["fcb"]), approximate="tanh")
        x = x + functional.linear(gelu, of["fcprojw"], of["fcprojb"])
    return functional.linear(functional.layer_norm(x, (wide,), p["lnfw"], p["lnfb"]), p["wte"])


def main():
    torch.set_num_threads(1)
    case = dict(np.load(sys.argv[1]))
    tokens = torch.from_numpy(case.pop("tokens").astype(np.int64))
    heads, vocabulary, steps, bf16 = (int(case.pop(name)) for name in ("heads", "vocabulary", "steps", "bf16"))
    kind = torch.bfloat16 if bf16 else torch.float32
    p = {name: torch.from_numpy(each).to(kind).requires_grad_() for name, each in case.items()}
    optimiser = torch.optim.AdamW(p.values(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    result, means = {}, []
    for step in range(max(steps, 1)):
        logits = forward(p, tokens[0], heads)[..., :vocabulary]
        losses = functional.cross_entropy(logits.float().flatten(0, 1), tokens[1].flatten(), reduction="none")
        optimiser.zero_grad()
        losses.mean().backward()
        if step == 0:
            result = {
                "logits": logits.detach().float().numpy(),
                "losses": losses.detach().view(tokens[1].shape).numpy(),
            }
            result.update({f"gradient_{name}": each.grad.float().clone().numpy() for name, each in p.items()})
        means.append(losses.mean().item())
        if not bf16:
            optimiser.step()
    np.savez(sys.argv[2], means=np.array(means), version=np.array(torch.__version__), **result)


main()
