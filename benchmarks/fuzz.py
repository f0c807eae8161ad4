"""Plays broken responses to the wire and the decoder until the time is up; prints JSON lines.

The seeds are the conformance corpus, the accidents those of tests/conformance/mutate.py, each on a transport
drawn at random. A crash is an exception, a call that ends other than once, a wait for bytes that came, or facts
the ledger can't take: anything `play` and `check_storable` complain of. One in sixteen is played again, cut
differently: what its bytes mean mustn't hang on how they were read. Crashes go to out/fuzz/*.json, and
`--replay FILE` plays one again. Exit code 1 on any.
"""

import argparse
import base64
import contextlib
import hashlib
import json
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from tests.conformance.cases import OPEN  # noqa: E402 - the tests are no package: the checkout must be on the path
from tests.conformance.corpus import corpus  # noqa: E402
from tests.conformance.mutate import ENDS, cuts, mutated  # noqa: E402
from tests.conformance.pure import check_storable  # noqa: E402
from tests.conformance.transports import TRANSPORTS, Opener, opener  # noqa: E402

SEED_BYTES = 20_000
"""Cases longer than this are no seeds: they cost more than they teach."""
SETTLE_S = 0.0005
PROGRESS_S = 30.0
KEPT_OF_A_KIND = 3


class Fuzzer:
    """The state of one run."""

    def __init__(self, seed: int, out: Path, openers: dict[str, Opener]) -> None:
        self.random = Random(seed)
        self.out = out
        self.openers = openers
        self.players = {name: fresh() for name, fresh in openers.items()}
        self.seeds = [case for case in corpus() if len(case.response) <= SEED_BYTES]
        self.others = [case.response for case in self.seeds]
        self.outcomes: Counter[str] = Counter()
        self.crashes: Counter[str] = Counter()
        self.cases = 0

    def one(self) -> None:
        """Break one response and play it."""
        random = self.random
        case = random.choice(self.seeds)
        data = mutated(random, case.response, self.others, random.choice((1, 1, 1, 1, 2, 2, 3, 6)))
        end = random.choice((case.end, *ENDS))
        name = random.choice(tuple(self.players))
        self.cases += 1
        parts = cuts(random, data)
        facts = self.play(name, case.name, parts, end, case.dialect)
        if facts is not None and end != OPEN and random.randrange(16) == 0:
            self.play(name, case.name, cuts(random, data), end, case.dialect, before=facts)

    def play(
        self, transport: str, case: str, parts: list[bytes], end: str, dialect: str, before: object = None
    ) -> tuple[object, ...] | None:
        """The outcome, kinds and text of one play; None when it crashed, which is written down."""
        try:
            facts = self.players[transport].play(parts, end, dialect, settle_s=SETTLE_S)
            check_storable(facts)
            found = (facts.outcome, facts.kinds, facts.text, facts.finish, facts.usage, facts.tokens)
            assert before is None or found == before, f"cut otherwise: {before} then {found}"
        except Exception as error:  # noqa: BLE001 - whatever comes out is what is looked for
            self.crashed(error, {"transport": transport, "case": case, "end": end, "dialect": dialect}, parts)
            self.players[transport] = self.openers[transport]()
            return None
        self.outcomes[facts.outcome] += 1
        return found

    def crashed(self, error: Exception, where: dict[str, str], parts: list[bytes]) -> None:
        """Write the first few crashes of each kind down."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        kind = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
        self.crashes[kind] += 1
        if self.crashes[kind] > KEPT_OF_A_KIND:
            return
        document = {
            **where,
            "kind": kind,
            "error": str(error)[:2000],
            "traceback": traceback.format_exception(error)[-4:],
            "parts": [base64.b64encode(part).decode() for part in parts],
        }
        self.out.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(b"".join(parts) + kind.encode()).hexdigest()[:16]
        (self.out / f"{name}.json").write_text(json.dumps(document, indent=1))
        print(json.dumps({"crash": kind, "error": str(error)[:200], "file": f"{name}.json", **where}), flush=True)


def replay(path: Path, openers: dict[str, Opener]) -> None:
    """Play a crash again, letting what it raises through."""
    document = json.loads(path.read_text())
    parts = [base64.b64decode(part) for part in document["parts"]]
    facts = openers[document["transport"]]().play(parts, document["end"], document["dialect"], settle_s=SETTLE_S)
    print(facts)
    check_storable(facts)


def tell(fuzzer: Fuzzer, seconds: float) -> None:
    """One line of progress, and the last line."""
    line = {"cases": fuzzer.cases, "crashes": fuzzer.crashes.total(), "seconds": round(seconds, 1)}
    print(json.dumps(line), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=REPO / "out" / "fuzz")
    parser.add_argument("--replay", type=Path, help="a crash file to play again")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        openers = {name: stack.enter_context(opener(name)) for name in TRANSPORTS}
        if args.replay:
            replay(args.replay, openers)
            return 0
        fuzzer = Fuzzer(args.seed, args.out, openers)
        start = time.monotonic()
        told = start
        while (now := time.monotonic()) - start < args.minutes * 60:
            if now - told >= PROGRESS_S:
                told = now
                tell(fuzzer, now - start)
            fuzzer.one()
    print(json.dumps({"outcomes": fuzzer.outcomes, "kinds": fuzzer.crashes, "transports": TRANSPORTS}))
    tell(fuzzer, time.monotonic() - start)
    return 1 if fuzzer.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
