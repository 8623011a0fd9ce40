"""Products of matrices by PyTorch on several threads, then in workers that are forks."""

from __future__ import annotations

import math

import numpy as np
import torch

import toys
from fedcohort.arrays import Array
from fedcohort.protocol import Site, message, summed
from fedcohort.runtime.coordinator import Coordinator
from fedcohort.runtime.local import local
from fedcohort.runtime.workers import DividedTransport, one_thread


@message
class Told:
    """Some of a product, and on how many threads it was formed."""

    product: Array
    threads: Array


@summed
def multiply(site: Site[float, None]) -> Told:
    """Multiply matrices large enough for several threads."""
    a = torch.linspace(0, 1, 400 * 400, dtype=torch.float32).reshape(400, 400) * site.data
    return Told((a @ a)[:3].double().numpy(), np.array(float(torch.get_num_threads())))


def main() -> None:
    """Compute here, among workers, and here again."""
    hosts = toys.hosts({name: float(i) for i, name in enumerate("abcd")}, (multiply,))
    local(hosts).sum(multiply)  # the parent's threads are there from now on
    before = torch.get_num_threads()
    transport = DividedTransport(hosts, workers=2, start=-math.inf)
    found = Coordinator(transport).sum(multiply)
    assert len(transport.workers) == 2
    transport.close()
    assert float(found.threads) == 4.0, "four sites, one thread each"
    with one_thread():
        here = local(hosts).sum(multiply)
    assert here.product.tobytes() == found.product.tobytes()
    assert torch.get_num_threads() == before


if __name__ == "__main__":
    main()
