"""Forms of CPUs on random layers."""

import onnx_ir as ir
import pytest

from compiler.passes import fold_factors
from tests.property import forms
from tests.property.forms import differences


def test_formed_graphs_give_what_graphs_gave() -> None:
    found = {seed: differences(seed) for seed in range(40)}
    assert {seed: wrong for seed, (wrong, _) in found.items() if wrong} == {}
    assert sum(changed for _, changed in found.values()) > 100


def test_every_form_has_something_to_do() -> None:
    done: dict[str, int] = dict.fromkeys((form.name for form in forms.REWRITES), 0)
    for seed in range(0, 24, 2):
        for name, changed in forms.changes(seed).items():
            done[name] += changed
    assert done.pop("lower_integers") == 0, "these layers are of real numbers"
    assert min(done.values()) > 0, done


def test_a_form_that_forgets_a_bias_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = fold_factors._Way._constant

    def weights_alone(self: fold_factors._Way, node: ir.Node, at: int) -> bool:
        return real(self, node, at) if node.op_type == "MatMul" else True

    monkeypatch.setattr("compiler.passes.fold_factors._Way._constant", weights_alone)
    assert [seed for seed in range(20) if differences(seed)[0]]


def test_a_fill_that_is_left_out_of_a_sum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.states.free_slots.FreeSlots.are_hidden", lambda *_: True)
    assert [seed for seed in range(40) if differences(seed)[0]]
