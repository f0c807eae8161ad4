import pytest

from tfbench.bounds import attainable_flops_per_s, break_even_tokens_per_s, speedup


def test_the_roof_is_flat_past_the_ridge() -> None:
    assert attainable_flops_per_s(1e15, 1e12, 10) == 1e13
    assert attainable_flops_per_s(1e15, 1e12, 1e3) == attainable_flops_per_s(1e15, 1e12, 1e6) == 1e15


def test_a_part_that_vanishes_leaves_the_rest() -> None:
    assert speedup(0.5, 1e12) == pytest.approx(2)
    assert speedup(0.0, 10) == 1


@pytest.mark.parametrize(("share", "factor"), [(-0.1, 2), (1.1, 2), (0.5, 0)])
def test_a_share_is_a_share(share: float, factor: float) -> None:
    with pytest.raises(ValueError, match="share"):
        speedup(share, factor)


def test_no_rate_breaks_even_at_no_price() -> None:
    with pytest.raises(ValueError, match="price"):
        break_even_tokens_per_s(6, 0)
