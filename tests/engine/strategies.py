"""Engines and traffic at random: small, crowded, and with every mechanism on or off."""

from hypothesis import strategies as st

from tests.engine.stepwise import Arrival
from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.kv import segment_blocks

LONGEST_PROMPT, LONGEST_OUTPUT = 30, 40


@st.composite
def engines(draw: st.DrawFn) -> EngineConfig:
    """Without limit to KV, or with so little that sequences get in each other's way."""
    slots = draw(st.integers(1, 6) | st.just(6))
    block_tokens = draw(st.integers(1, 7))
    least = -(-(LONGEST_PROMPT + LONGEST_OUTPUT) // block_tokens)
    return EngineConfig(
        max_num_seqs=slots,
        max_num_batched_tokens=slots + draw(st.integers(0, 30)),
        max_waiting=draw(st.sampled_from([0, 3, 1000])),
        batching=draw(st.sampled_from(["iteration", "iteration", "static"])),
        chunked_prefill=draw(st.booleans()),
        block_tokens=block_tokens,
        kv_blocks=draw(st.none() | st.sampled_from([least, least, least + 1, 2 * least])),
        prefix_reuse=draw(st.booleans()),
        step_time=draw(
            st.sampled_from(
                [
                    StepTime(0.5, 0.0, 0.0),  # its steps end on the grid of the arrivals
                    StepTime(1.0, 0.1, 0.01),
                    StepTime(1.0, 0.1, 0.01, 0.00137),
                    StepTime(0.0, 0.0, 0.0),
                ]
            )
        ),
    )


@st.composite
def traffic(draw: st.DrawFn, block_tokens: int) -> list[Arrival]:
    """Arrivals on a grid, so that some coincide with each other and with the ends of steps; prompts of few families."""
    arrivals = []
    for number in range(draw(st.integers(1, 25))):
        prompt = draw(st.integers(1, LONGEST_PROMPT))
        head = min(draw(st.sampled_from([0, 5, 12, LONGEST_PROMPT])), prompt)
        segments = [(f"family {draw(st.integers(0, 1))}", head), (f"own {number}", prompt - head)]
        at = draw(st.integers(0, 80)) * 500_000
        stay = draw(st.none() | st.none() | st.integers(0, 40))
        arrivals.append(
            Arrival(
                at_ns=at,
                prompt=prompt,
                output=draw(st.integers(1, LONGEST_OUTPUT)),
                cancel_ns=None if stay is None else at + stay * 500_000,
                blocks=segment_blocks(segments, block_tokens),
            )
        )
    return sorted(arrivals, key=lambda arrival: arrival.at_ns)
