"""What several members say of neighbours, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def join(
    names: Sequence[Tensor],
    shared: Mapping[str, Sequence[Tensor]],
    by_member: Mapping[str, Sequence[Tensor]],
    shares: Sequence[float] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Join what members say of neighbours; all tensors are (n, m), name -1 is nobody.

    Returns the m names of largest mean `weights` for each row, heaviest first, and for
    them the means over all members of what is `shared` (nothing where a member did not
    name a candidate) and over those members who did of what comes `by_member`. In the
    first a member counts by its share; None counts all alike.
    """
    m, n_members = names[0].shape[1], len(names)
    named = torch.cat(list(names), 1)  # (n, members * m)
    order = torch.arange(named.shape[1], device=named.device).expand_as(named)
    if n_members > 1:
        named, order = named.sort(dim=1, stable=True)
    # Equal names now stand side by side, no more than there are members: the first of
    # them takes all. Adding up in this order gives the same bits on every device.
    behind = range(1, n_members)
    equal = [named[:, k:] == named[:, :-k] for k in behind]
    somebody = named >= 0
    is_first = somebody.clone()
    if equal:
        is_first[:, 1:] &= ~equal[0]

    def sums(parts: Sequence[Tensor]) -> Tensor:
        values = torch.cat(list(parts), 1).gather(1, order)
        values = values.masked_fill(~somebody, 0.0)
        total = values.clone()
        for k, same in zip(behind, equal, strict=True):
            total[:, :-k] += values[:, k:] * same
        return total

    shares = [1.0] * n_members if shares is None else shares
    means = {
        name: sums([part * share for part, share in zip(parts, shares, strict=True)])
        / sum(shares)
        for name, parts in shared.items()
    }
    if by_member:
        count = torch.ones_like(means["weights"])
        for k, same in zip(behind, equal, strict=True):
            count[:, :-k] += same
        means |= {name: sums(parts) / count for name, parts in by_member.items()}
    # Weights are not negative: whoever is named stands before all others.
    keys = torch.where(is_first, means["weights"], -1.0)
    heaviest = keys.sort(dim=1, descending=True, stable=True).indices[:, :m]
    joined = torch.where(is_first, named, -1).gather(1, heaviest)
    return joined, {
        name: values.gather(1, heaviest).masked_fill(joined < 0, 0.0)
        for name, values in means.items()
    }
