"""Topics of binary rows: each site's own, by Gibbs sampling, and their shares in rows.

Teh, Jordan, Beal, Blei, "Hierarchical Dirichlet processes", JASA 101(476), 2006. A row is a
document whose words are the columns where it is 1. With topics φ_k (p,) that sum to 1, their shares
π of all rows, and θ (K,) a row's own shares, a row with the words w has θ at the fixed point of

    θ_k ∝ a π_k + Σ_w θ_k φ_kw / Σ_l θ_l φ_lw                                               (1)

from the start π; its topic is that of the largest share. A row without a one has θ = π.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedcohort.arrays import Array
from fedcohort.protocol import NotSupported, Site, gathered, message, summed

#: Iterations of eq. (1), and least probability of a word.
ROUNDS, FLOOR = 50, 1e-12


@message
class Topics:
    """A site's topics φ (t, p), and the rows of each (t,)."""

    topics: Array
    sizes: Array


@message
class Labelled:
    """Rows by topic, counts (k,), and rows without a one, blank ()."""

    counts: Array
    blank: Array


def shares(x: Array, topics: Array, weights: Array, concentration: float) -> Array:
    """Return θ, eq. (1), (n, K) of rows x (n, p).

    Parameters
    ----------
    topics, weights : φ (K, p) and π (K,).
    concentration : a > 0, in words.
    """
    words = np.asarray(x, float) > 0
    theta = np.tile(weights, (len(words), 1))
    phi = np.maximum(topics, FLOOR)
    for _ in range(ROUNDS):
        theta = theta * ((words / (theta @ phi)) @ phi.T) + concentration * weights
        theta /= theta.sum(axis=1, keepdims=True)
    return theta


@gathered
def own_topics(
    site: Site[Any, None],
    *,
    iterations: int,
    alpha: float,
    gamma: float,
    eta: float,
    least: int,
) -> Topics:
    """Infer the site's own topics; return those that are not small."""
    x: Array = site.data.x
    found, sizes = sampled(x, iterations, alpha, gamma, eta, site.seed)
    kept = sizes >= max(least, 1)
    return Topics(found[kept], sizes[kept])


def sampled(
    x: Array, iterations: int, alpha: float, gamma: float, eta: float, seed: int
) -> tuple[Array, Array]:
    """Return topics (t, p) of rows x (n, p) by Gibbs sampling, and the rows of each (t,).

    A row belongs to the topic with the largest share in it; rows without a one to none.

    Raises
    ------
    NotSupported : the package tomotopy is not installed.
    """
    model = _sampler()(alpha=alpha, gamma=gamma, eta=eta, seed=seed % 2**31)
    words = [np.flatnonzero(row).astype(str).tolist() for row in x > 0]
    if not any(words):
        return np.zeros((0, x.shape[1])), np.zeros(0, np.int64)
    for row in filter(None, words):
        model.add_doc(row)
    model.train(iterations, workers=1)
    columns = np.array([int(word) for word in model.used_vocabs])
    topics = np.zeros((model.k, x.shape[1]))
    for k in range(model.k):
        topics[k, columns] = model.get_topic_word_dist(k)
    label = [int(np.argmax(doc.get_topic_dist())) for doc in model.docs]
    sizes = np.bincount(label, minlength=model.k).astype(np.int64)
    return topics[sizes > 0], sizes[sizes > 0]


def _sampler() -> Any:
    try:
        from tomotopy import HDPModel
    except ImportError:
        raise NotSupported(
            "method 'hdp' needs the package tomotopy: pip install 'fedcohort[hdp]'."
        ) from None
    return HDPModel


@summed
def count_topics(
    site: Site[Any, None], *, topics: Array, weights: Array, concentration: float
) -> Labelled:
    """Count the rows of each topic."""
    label = shares(site.data.x, topics, weights, concentration).argmax(axis=1)
    counts = np.bincount(label, minlength=len(topics)).astype(np.int64)
    return Labelled(counts, np.array(int((~(site.data.x > 0).any(axis=1)).sum())))


STEPS = (own_topics, count_topics)
