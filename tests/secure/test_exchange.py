"""A masked sum is the exact sum of its survivors' replies, or there is none."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from examples import examples
from fedcohort.protocol.errors import QuorumLost, Refused
from fedcohort.secure import (
    Gathering,
    InMemory,
    Layout,
    add,
    decode,
    digest,
    encode,
    masked_sum,
    zeros,
)
from fedcohort.secure.exchange.messages import (
    Advert,
    Answer,
    Asked,
    Ballot,
    Masked,
    Post,
    Roll,
    Sealed,
    Signed,
    Survivors,
)
from fedcohort.secure.exchange.rehearse import STAGES
from fedcohort.secure.exchange.rule import terms
from secure_attacks import masked, signed
from secure_cases import a_context, outcome, prepared, replies, right_sum, some_members


@st.composite
def dropouts(draw):
    n = draw(st.integers(3, 7))
    names = [f"site{i}" for i in range(n)]
    away = draw(st.dictionaries(st.sampled_from(names), st.sampled_from(STAGES), max_size=n // 2))
    return n, away


@settings(max_examples=examples(150), deadline=None)
@given(dropouts(), st.integers(0, 2**32))
def test_with_dropouts_at_any_stage_a_sum_is_exact_or_cleanly_given_up(case, seed):
    n, away = case
    assert outcome(n, seed, away) in ("sum", "abort")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("n", "lost"), [(4, 1), (6, 2), (7, 2)])
def test_a_third_of_the_sites_may_drop_out_at_any_stage(n, lost, stage):
    away = {f"site{i}": stage for i in range(lost)}
    assert outcome(n, 7, away) == "sum"
    away = {f"site{i}": stage for i in range(lost + 1)}
    assert outcome(n, 7, away) == ("sum" if n == 7 and lost == 1 else "abort")


def test_masked_or_not_the_sum_has_the_same_bits():
    members, epoch = prepared(5)
    told = replies(5, seed=3)
    layout = Layout.of(told["site0"])
    vectors = {name: encode(reply, layout, n=5) for name, reply in told.items()}
    total, _ = masked_sum(members, epoch, vectors, layout, digest("call"))
    plain = zeros(layout)
    for name in reversed(list(vectors)):
        add(plain, vectors[name], layout)
    assert np.array_equal(total, plain)
    assert right_sum(total, told, list(told), layout)


def test_weights_are_told_to_all_and_the_sum_is_weighted():
    members, epoch = prepared(4)
    weights = {f"site{i}": 1.0 + i for i in range(4)}
    reply = {"x": np.array([0.5, -3.0])}
    layout = Layout.of(reply, weighted=True)
    vectors = {k: encode(reply, layout, n=4, weight=w) for k, w in weights.items()}
    total, summing = masked_sum(members, epoch, vectors, layout, digest("call"), weights)
    plain = {"x": [np.array(w * reply["x"]) for w in weights.values()]}
    assert summing.asked.weight("site3") == 4.0
    told = {k: {"x": a} for k, a in zip(weights, plain["x"], strict=True)}
    assert right_sum(total, told, list(told), layout)


def test_one_sites_masked_reply_is_uniform_noise():
    members, epoch = prepared(3)
    reply = {"x": np.zeros(16_384), "n": np.zeros(10_000, "i8")}
    layout = Layout.of(reply)
    asked = epoch.begin(digest("call")).asked
    vector = encode(reply, layout, n=3)
    sent = members["site0"].mask(asked, vector, layout, epoch.post("site0")).vector
    counts = np.bincount(sent.view(np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-4
    for byte in range(8):  # each place of a word as well
        counts = np.bincount(sent.view(np.uint8)[byte::8], minlength=256)
        assert chisquare(counts).pvalue > 1e-5
    two = members["site1"].mask(asked, vector, layout, epoch.post("site1")).vector
    pair = add(sent.copy(), two, layout)  # two sites' together still hide behind the third
    assert chisquare(np.bincount(pair.view(np.uint8), minlength=256)).pvalue > 1e-4


def test_masks_of_one_reply_differ_by_slot():
    members, epoch = prepared(3)
    layout = Layout.of({"x": np.zeros(9)})
    vector = encode({"x": np.ones(9)}, layout, n=3)
    sent = []
    for _ in range(2):
        asked = epoch.begin(digest("call")).asked
        sent.append(members["site0"].mask(asked, vector, layout, epoch.post("site0")).vector)
    assert not (sent[0] == sent[1]).any()


def test_an_answer_has_one_kind_of_share_of_each_member():
    members, _, summing, ballot = signed(5)
    answer = members["site0"].unmask(ballot)
    assert set(answer.self_masks) == set(summing.asked.members) and not answer.mask_keys
    assert not set(answer.self_masks) & set(answer.mask_keys)


def test_secrets_of_an_answered_slot_are_overwritten_and_others_kept():
    members, _, _, ballot = signed(4)
    members["site0"].unmask(ballot)
    at = members["site0"]._epochs[0]
    assert not any(at.key_seeds[0]) and not any(at.self_seeds[0])
    assert all(not any(held[:32]) and any(held[32:]) for held in at.held.values())
    members["site0"].close()
    assert not any(at.key_seeds[1]) and all(not any(held) for held in at.held.values())
    with pytest.raises(Refused, match="no keys of epoch 0"):
        members["site0"].unmask(ballot)


def test_a_question_is_answered_for_one_set_of_sites_even_after_a_restart():
    context, kept = a_context(4), InMemory()
    layout = Layout.of({"x": np.zeros(2)})
    vector = encode({"x": np.ones(2)}, layout, n=4)
    said = []
    for epoch, gone in enumerate((None, None, "site3")):
        members = some_members(4, context, settled=kept)  # a restart: all secrets are new
        gathering = Gathering(context, epoch, 1)
        for member in members.values():
            gathering.add_advert(member.advertise(epoch, 1))
        for member in members.values():
            gathering.add_shares(member.share(gathering.roll()))

        def absent(stage, name, gone=gone):
            return stage == "mask" and name == gone

        vectors = dict.fromkeys(members, vector)
        if gone is None:
            total, summing = masked_sum(members, gathering, vectors, layout, digest("q"))
            said.append((total.tobytes(), summing.survivors().survivors))
        else:
            with pytest.raises(Refused, match="answered for other sites"):
                masked_sum(members, gathering, vectors, layout, digest("q"), absent=absent)
    assert said[0] == said[1]
    assert terms(("a", "b"), None) != terms(("a", "b"), {"a": 1.0, "b": 1.0})


def test_a_malformed_reply_is_refused_by_name_and_the_sum_goes_on_without_it():
    members, epoch = prepared(5)
    layout = Layout.of({"x": np.zeros(2)})
    other = Layout.of({"y": np.zeros(2)})
    summing = epoch.begin(digest("call"))
    for i, (name, member) in enumerate(members.items()):
        vector = encode({"x": np.full(2, float(i))}, layout, n=5)
        sent = member.mask(summing.asked, vector, layout, epoch.post(name))
        if i == 4:
            for bad in (replace(sent, vector=sent.vector[:3]), replace(sent, layout=other),
                        replace(sent, slot=1)):  # fmt: skip
                with pytest.raises(Refused, match="site4"):
                    summing.add(bad)
            continue
        summing.add(sent)
        with pytest.raises(Refused, match="answered twice"):
            summing.add(sent)
    said = summing.survivors()
    assert said.dropped == ("site4",)
    for name in said.survivors:
        signature = members[name].sign(said)
        with pytest.raises(Refused, match="signed another text"):
            summing.add_signature(replace(signature, signature=bytes(64)))
        summing.add_signature(signature)
    ballot = summing.ballot()
    for name in said.survivors:
        answer = members[name].unmask(ballot)
        with pytest.raises(Refused, match="one share of each"):
            summing.add_answer(replace(answer, mask_keys={}))
        summing.add_answer(answer)
    wanted = encode({"x": np.full(2, 6.0)}, layout, n=5)
    assert np.array_equal(summing.total(), wanted)


def test_a_site_that_tells_a_wrong_share_is_found_and_done_without():
    members, _, summing, ballot = signed(5)
    for name, member in members.items():
        answer = member.unmask(ballot)
        if name == "site1":
            wrong = {**answer.self_masks, "site3": bytes(16)}
            answer = replace(answer, self_masks=wrong)
        summing.add_answer(answer)
    layout = summing.layout
    assert np.array_equal(summing.total(), encode({"x": np.array([10.0, 20.0])}, layout, n=5))
    assert summing.blamed == ("site1",)


def test_sites_that_were_told_different_calls_sign_nothing_in_common():
    members, epoch = prepared(4)
    layout = Layout.of({"x": np.zeros(2)})
    vector = encode({"x": np.ones(2)}, layout, n=4)
    summing = epoch.begin(digest("call"))
    for name, member in members.items():
        asked = replace(summing.asked, digest=digest("other")) if name == "site2" else summing.asked
        summing.add(member.mask(asked, vector, layout, epoch.post(name)))
    said = summing.survivors()
    votes = {name: m.sign(said).signature for name, m in members.items()}
    for member in members.values():
        with pytest.raises(Refused, match="not on what this site signed"):
            member.unmask(Ballot(0, 0, votes))


def test_a_repeated_message_gets_the_same_answer_at_every_stage():
    members, gathering, summing, ballot = signed(3)
    site, asked, layout = members["site0"], summing.asked, summing.layout
    assert site.advertise(0, 2) is site.advertise(0, 2)
    assert site.share(gathering.roll()) == site.share(gathering.roll())
    vector = encode({"x": np.array([0.0, 0.0])}, layout, n=3)
    again = [site.mask(asked, vector, layout).vector for _ in range(2)]
    assert np.array_equal(*again)
    assert site.sign(summing.survivors()) == site.sign(summing.survivors())
    assert site.unmask(ballot) == site.unmask(ballot)
    with pytest.raises(QuorumLost, match="unmask"):
        summing.total()


def test_messages_come_back_from_json_and_anything_else_is_refused():
    members, gathering, summing, ballot = signed(3)
    site = members["site0"]
    said, roll = summing.survivors(), gathering.roll()
    told = [
        (site.advertise(0, 2), Advert), (roll, Roll), (site.share(roll), Sealed),
        (gathering.post("site0"), Post), (summing.asked, Asked), (said, Survivors),
        (site.sign(said), Signed), (ballot, Ballot), (site.unmask(ballot), Answer),
    ]  # fmt: skip
    for message, kind in told:
        meta = json.loads(json.dumps(message.to_meta()))
        assert kind.from_meta(meta) == message
        for key in meta:
            for broken in (None, -1, True, "", "zz", [None], {"a": None}, 1e300, {"a": "0"}):
                if (broken is None and key == "weights") or (
                    broken == "zz" and key in ("name", "digest")
                ):
                    continue
                with pytest.raises(Refused, match="malformed"):
                    kind.from_meta({**meta, key: broken})
        for broken in (None, [], {}, {**meta, "more": 1}):
            with pytest.raises(Refused, match="malformed"):
                kind.from_meta(broken)
    sent = masked(3)[2]
    meta = {"name": "a", "epoch": 0, "slot": 0, "layout": sent.layout.to_meta()}
    assert Masked.from_meta(meta, np.zeros(6, "<u8")).layout == sent.layout


def test_a_reply_without_numbers_is_a_sum_of_none():
    members, epoch = prepared(3)
    reply = {"none": np.empty((0, 2))}
    layout = Layout.of(reply)
    vectors = dict.fromkeys(members, encode(reply, layout, n=3))
    total, _ = masked_sum(members, epoch, vectors, layout, digest("call"))
    assert decode(total, layout)["none"].shape == (0, 2)


def test_bits_beyond_a_words_reach_are_carried_under_masks():
    members, epoch = prepared(3)
    reply = {"x": np.array([-(2.0**-96), 2.0**-33, -1.0])}
    layout = Layout.of(reply)
    vectors = dict.fromkeys(members, encode(reply, layout, n=3))
    total, _ = masked_sum(members, epoch, vectors, layout, digest("call"))
    assert decode(total, layout)["x"].tolist() == [-3 * 2.0**-96, 3 * 2.0**-33, -3.0]


def test_a_slot_is_signed_for_one_set_of_survivors():
    members, _, summing = masked(5)
    said = summing.survivors()
    members["site0"].sign(said)
    less = replace(said, survivors=said.survivors[:4], dropped=said.survivors[4:])
    with pytest.raises(Refused, match="signed for other survivors"):
        members["site0"].sign(less)


def test_of_two_slots_for_one_question_only_the_first_is_signed():
    members, gathering, summing, _ = signed(5)
    again = gathering.begin(summing.asked.digest)
    vector = encode({"x": np.zeros(2)}, summing.layout, n=5)
    for name in again.asked.members:
        sent = members[name].mask(again.asked, vector, summing.layout, gathering.post(name))
        if name != "site4":
            again.add(sent)
    said = again.survivors()
    for name in said.survivors:  # nothing is unmasked yet
        with pytest.raises(Refused, match="answered for other sites"):
            members[name].sign(said)


def test_a_site_that_signed_and_was_never_asked_to_unmask_signs_for_no_others_after_a_crash():
    context, kept = a_context(4), {f"site{i}": InMemory() for i in range(4)}
    layout = Layout.of({"x": np.zeros(2)})
    vector = encode({"x": np.ones(2)}, layout, n=4)
    for epoch, gone in enumerate((None, "site3")):
        members = {}  # a restart: only what was kept is left
        for name, book in kept.items():
            members[name] = some_members(4, context, settled=book)[name]
        gathering = Gathering(context, epoch, 1)
        for member in members.values():
            gathering.add_advert(member.advertise(epoch, 1))
        for member in members.values():
            gathering.add_shares(member.share(gathering.roll()))
        summing = gathering.begin(digest("q"))
        for name, member in members.items():
            masked = member.mask(summing.asked, vector, layout, gathering.post(name))
            if name != gone:
                summing.add(masked)
        said = summing.survivors()
        for name in said.survivors:
            if gone is None:
                members[name].sign(said)
            else:
                with pytest.raises(Refused, match="answered for other sites"):
                    members[name].sign(said)


def test_a_restarted_site_draws_new_secrets_for_the_same_epoch_and_no_old_roll_takes_it_back():
    """Epoch numbers are kept in memory alone: one that comes twice masks nothing twice."""
    members, gathering = prepared(3)
    old = gathering.roll()
    again = some_members(3)["site0"]
    new = again.advertise(0, 2)
    before = old.by_name["site0"]
    assert not {new.letter_key, *new.mask_keys, *new.seals} & {
        before.letter_key, *before.mask_keys, *before.seals,
    }  # fmt: skip
    with pytest.raises(Refused, match="than its own"):
        again.share(old)
    mixed = Roll(0, old.threshold, (new, *(a for a in old.adverts if a.name != "site0")))
    sealed = again.share(mixed)  # it cannot know that the others' keys are of the roll before
    with pytest.raises(Refused, match="shared among other members"):
        members["site1"].share(mixed)
    layout = Layout.of({"x": np.zeros(2)})
    asked = gathering.begin(digest("call")).asked
    vector = encode({"x": np.ones(2)}, layout, n=3)
    with pytest.raises(Refused, match="not sound"):  # so that nothing of it is masked
        again.mask(asked, vector, layout, gathering.post("site0"))
    assert set(sealed.letters) == {"site1", "site2"}


def test_members_that_were_asked_about_other_things_give_noise():
    members, gathering = prepared(3)
    layout = Layout.of({"x": np.zeros(2)})
    summing = gathering.begin(digest("call"), about=digest("here"))
    for name, member in members.items():
        told = replace(summing.asked, about=digest("there")) if name == "site2" else summing.asked
        vector = encode({"x": np.ones(2)}, layout, n=3)
        summing.add(member.mask(told, vector, layout, gathering.post(name)))
    said = summing.survivors()
    for name in ("site0", "site1"):
        summing.add_signature(members[name].sign(said))
    with pytest.raises(Refused, match="signed another text"):
        summing.add_signature(members["site2"].sign(said))
    for name in ("site0", "site1"):
        summing.add_answer(members[name].unmask(summing.ballot()))
    assert abs(decode(summing.total(), layout)["x"]).max() > 2**100


@pytest.mark.parametrize("heavy", [2.0**24 + 1, 1e299, -1.0])
def test_no_weight_can_bring_an_ordinary_reply_out_of_range(heavy):
    _, gathering = prepared(3)
    with pytest.raises(Refused, match="negative, not finite or above"):
        gathering.begin(digest("call"), weights=dict.fromkeys(gathering.ready, heavy))
