"""The golden ledger's other runs: capped slots, a count load, nothing qualified, unknown counts, nothing counted.

Read `golden_ledger` first: how a sum reads, and the choices made where the definitions leave one.
"""

from tests.metrics.golden_build import (
    ACCOUNTING,
    GoldenRun,
    Row,
    Want,
    comment,
    empty,
    finish,
    reasoning,
    role,
    text,
    tool,
    usage,
)

# fmt: off
# (the sums stand beside the rows; a formatter would pull them apart)

# ── B ── open_capped, two slots: window [0, 1800), drain to 2800 ───────────────────────────────────────────────
# SLO: 90 % of an attempt's gaps within 60, e2e 600; no TTFT or TPOT term. Window 1.8 s = 0.0005 h: 0.003 USD.

B_ROWS = (
    Row(1, "slot free at once; tool-call deltas", "measure", 0, 0.1, 1.2, 132, slot=0, connected=1.1, prompt=15, out=8,
        chunks=(role(20), tool(110, 3), tool(130, 5), finish(131), usage(132)), finish="tool_calls",
        # ttft 110; svc 108.8; tpot 20/7; aft 20/5; e2e 132; 130.8; lag 0.1 + 0.1
        want=Want(ttft=110, ttft_service=108.8, tpot=2.85714285714286, after_first=4, gaps=(20,),
                  e2e=132, e2e_service=130.8, lag=0.2, counted=True, in_window=True, good=True)),
    Row(2, "ten gaps, one long: its p90 is rank 9, met", "measure", 50, 50.2, 51.3, 632, slot=50, connected=51.2,
        prompt=25, out=11,
        chunks=(text(150, 1), text(170, 1), text(190, 1), text(210, 1), text(230, 1), text(250, 1), text(270, 1),
                text(290, 1), text(310, 1), text(330, 1), text(630, 1), finish(631)),
        # ttft 100; svc 98.7; tpot 480/10; p90 of ten gaps: rank 9 = 20 <= 60; e2e 582 <= 600; 580.7; lag 0.2+0.1
        want=Want(ttft=100, ttft_service=98.7, tpot=48, after_first=48, one_token=True,
                  gaps=(20, 20, 20, 20, 20, 20, 20, 20, 20, 300),
                  e2e=582, e2e_service=580.7, lag=0.3, counted=True, in_window=True, good=True)),
    Row(3, "waits for 1's slot; nine gaps, one long: its p90 is rank 9 (8.1 up), missed", "measure",
        100, 132.6, 132.8, 571, slot=132.5, prompt=35, out=10,
        chunks=(text(190, 1), text(200, 1), text(210, 1), text(220, 1), text(230, 1), text(240, 1), text(250, 1),
                text(260, 1), text(270, 1), text(570, 1)),
        # ttft 190-100: the slot's wait is latency; svc 57.2; tpot 380/9; e2e 471; 438.2;
        # lag (132.6-132.5)+(132.8-132.6)
        want=Want(ttft=90, ttft_service=57.2, tpot=42.2222222222222, after_first=42.2222222222222, one_token=True,
                  gaps=(10, 10, 10, 10, 10, 10, 10, 10, 300),
                  e2e=471, e2e_service=438.2, lag=0.3, counted=True, in_window=True)),
    Row(4, "taken up at once, then waits for 3's slot; failed quality", "measure", 300, 300.1, 571.7, 741, slot=571.5,
        prompt=45, out=2, quality='{"passed": false}',
        chunks=(text(700, 1), text(740, 1)),
        # ttft 400; svc 128.3; tpot 40/1; e2e 441; 169.3; lag (300.1-571.5)+(571.7-300.1) = -271.4+271.6
        want=Want(ttft=400, ttft_service=128.3, tpot=40, after_first=40, gaps=(40,), one_token=True,
                  e2e=441, e2e_service=169.3, lag=0.2, counted=True, in_window=True)),
    Row(5, "waits for 2's slot, new connection, 429", "measure", 400, 632.6, 634.7, 640, slot=632.5, connected=634.6,
        outcome="rejected", status=429,
        # e2e 240; 5.3; lag 0.1 + (634.7-634.6)
        want=Want(e2e=240, e2e_service=5.3, lag=0.2, counted=True, in_window=True)),
    Row(6, "prefix cached; quality passed", "measure", 500, 640.6, 640.9, 751, slot=640.5,
        prompt=1000, cached=960, out=2,
        quality='{"passed": true, "score": 0.9}',
        chunks=(text(700, 1), text(750, 1), usage(751)),
        # ttft 200; svc 59.1; tpot 50/1; e2e 251; 110.1; lag 0.1+0.3
        want=Want(ttft=200, ttft_service=59.1, tpot=50, after_first=50, gaps=(50,), one_token=True,
                  e2e=251, e2e_service=110.1, lag=0.4, counted=True, in_window=True, good=True)),
    Row(7, "nothing visible, but no TTFT term: good", "measure", 600, 741.6, 741.7, 841, slot=741.5, prompt=55, out=2,
        chunks=(empty(800, 1), empty(840, 1)),
        # ttft 800-600 (the first output chunk); svc 800-741.7; tpot 40/1; e2e 241; 99.3; lag 0.1+0.1
        want=Want(ttft=200, ttft_service=58.3, tpot=40, after_first=40, gaps=(40,), one_token=True,
                  e2e=241, e2e_service=99.3, lag=0.2, counted=True, in_window=True, good=True)),
    Row(8, "reasoning first, a ping inside, usage very late: E2E over its limit", "measure", 700, 751.6, 751.8, 1300.5,
        slot=751.5, prompt=65, out=4, reasoning=2,
        chunks=(role(760), reasoning(820, 1), comment(850), reasoning(870, 1), text(920, 1), text(970, 1), finish(971),
                usage(1300.4)),
        # ttft 120 (reasoning is visible); svc 68.2; tpot 150/3; e2e 600.5 > 600; 548.7; lag 0.1+0.2
        want=Want(ttft=120, ttft_service=68.2, tpot=50, after_first=50, gaps=(50, 50, 50), one_token=True,
                  e2e=600.5, e2e_service=548.7, lag=0.3, counted=True, in_window=True)),
    Row(9, "hangs without a byte, cut at the end of drain", "measure", 1400, 1400.1, 1400.2, 2800, slot=1400,
        outcome="unfinished", status=None, stream=False,
        # e2e 1400; 1399.8; lag 0.1+0.1
        want=Want(e2e=1400, e2e_service=1399.8, lag=0.2, counted=True)),
    Row(10, "hangs after one chunk, cut at the end of drain", "measure", 1450, 1450.1, 1450.4, 2800, slot=1450,
        outcome="unfinished", chunks=(text(1600),),
        # ttft 150; svc 149.6; e2e 1350; 1349.6; lag 0.1+0.3
        want=Want(ttft=150, ttft_service=149.6, e2e=1350, e2e_service=1349.6, lag=0.4, counted=True)),
    Row(11, "never gets a slot: unsent", "measure", 1500, 1500.1, None, None,
        outcome="unsent", status=None, stream=False,
        want=Want(counted=True)),
)

B = GoldenRun(
    key="b", load_value=4.0, mode="open_capped", window=(0, 1800), base_s=60, rows=B_ROWS,
    toml="""
name = "golden-b"
[model]
name = "golden"
[endpoint]
adapter = "openai"
url = "http://127.0.0.1:8000/v1"
[load]
mode = "open_capped"
process = "poisson"
rates = [4]
max_in_flight = 2
duration_s = 1.8
warmup_s = 0
drain_s = 1
repeats = 1
[slo]
icl_ms = { p90 = 60 }
e2e_ms = 600
""" + ACCOUNTING,
    # counted: all 11. Ranks 5.5 -> 6; 10.45 -> 11; 10.89 -> 11.
    figures={
        # 90 100 110 120 150 [200] 200 400, inf x3 (5 9 11)
        "ttft_p50_ms": 200, "ttft_p95_ms": None, "ttft_p99_ms": None,
        # 57.2 58.3 59.1 68.2 98.7 [108.8] 128.3 149.6
        "ttft_service_p50_ms": 108.8, "ttft_service_p95_ms": None, "ttft_service_p99_ms": None,
        # 2.86 40 40 42.2 48 [50] 50, inf x4 (5 9 10 11)
        "tpot_p50_ms": 50, "tpot_p95_ms": None, "tpot_p99_ms": None,
        # 132 241 251 441 471 [582] 600.5, inf x4
        "e2e_p50_ms": 582, "e2e_p95_ms": None, "e2e_p99_ms": None,
        # 1+10+9+1+1+1+3 = 26 gaps: 10x8 20x10 40x2 50x4 300x2; ranks 13; 24.7 -> 25; 25.74 -> 26
        "icl_p50_ms": 20, "icl_p95_ms": 300, "icl_p99_ms": 300,
        # without 1's gap, 25: 10x8 20x9 40x2 50x4 300x2; ranks 12.5 -> 13; 23.75 -> 24; 24.75 -> 25
        "itl_p50_ms": 20, "itl_p95_ms": 300, "itl_p99_ms": 300,
        # without 11: 0.2x5 0.3x3 0.4x2; ranks 5; 9.5 -> 10; 10
        "client_lag_p50_ms": 0.2, "client_lag_p95_ms": 0.4, "client_lag_p99_ms": 0.4,
        "throughput_requests_per_s": 3.88888888888889,  # 1 2 3 4 6 7 8: 7/1.8
        "throughput_output_tokens_per_s": 21.6666666666667,  # 8+11+10+2+2+2+4 = 39; 39/1.8
        "goodput_requests_per_s": 2.22222222222222,  # 1 2 6 7: 4/1.8
        "good_fraction": 0.363636363636364,  # 4/11
        "qualified_output_tokens_per_s": 12.7777777777778,  # 8+11+2+2 = 23; 23/1.8
        "cost_per_million_qualified_tokens": 130.434782608696,  # 0.003 * 1e6 / 23 = 3000/23
    },
    qualified_input=1095,  # 15+25+1000+55
    vacuous=0,
    outcomes={("measure", "ok"): 7, ("measure", "rejected"): 1, ("measure", "unfinished"): 2, ("measure", "unsent"): 1},
)

# ── C ── closed loop, two users, count = 6: the window runs from the first schedule (0) to the last end (7200) ──
# SLO: ttft 1000, tpot 100. Window 7.2 s = 0.002 h: 0.012 USD. First user: 1, 3, 6; second user: 2, 4, 5.

C_ROWS = (
    Row(1, "scheduled at the window's start; TPOT at its limit", "measure", 0, 0.1, 2.2, 702,
        connected=2.1, prompt=10, out=3,
        chunks=(role(50), text(500, 1), text(600, 1), text(700, 1), finish(701), usage(702)),
        # ttft 500; svc 497.8; tpot 200/2 = limit; e2e 702; 699.8; lag 0.1+0.1
        want=Want(ttft=500, ttft_service=497.8, tpot=100, after_first=100, gaps=(100, 100), one_token=True,
                  e2e=702, e2e_service=699.8, lag=0.2, counted=True, in_window=True, good=True)),
    Row(2, "two tokens a chunk", "measure", 100, 100.1, 101.2, 810, connected=101.1, prompt=20, out=6,
        chunks=(text(400, 2), text(600, 2), text(800, 2), finish(809)),
        # ttft 300; svc 298.8; tpot 400/5; aft 400/4; e2e 710; 708.8; lag 0.1+0.1
        want=Want(ttft=300, ttft_service=298.8, tpot=80, after_first=100, gaps=(200, 200),
                  e2e=710, e2e_service=708.8, lag=0.2, counted=True, in_window=True, good=True)),
    Row(3, "TPOT over its limit", "measure", 1702, 1702.1, 1702.2, 2810, prompt=30, out=3,
        chunks=(text(2602, 1), text(2702, 1), text(2803, 1)),
        # ttft 900; svc 899.8; tpot 201/2 > 100; aft 201/2; e2e 1108; 1107.8; lag 0.1+0.1
        want=Want(ttft=900, ttft_service=899.8, tpot=100.5, after_first=100.5, gaps=(100, 101), one_token=True,
                  e2e=1108, e2e_service=1107.8, lag=0.2, counted=True, in_window=True)),
    Row(4, "plain", "measure", 1810, 1810.3, 1810.4, 2062, prompt=40, out=2,
        chunks=(text(2010, 1), text(2060, 1)),
        # ttft 200; svc 199.6; tpot 50/1; e2e 252; 251.6; lag 0.3+0.1
        want=Want(ttft=200, ttft_service=199.6, tpot=50, after_first=50, gaps=(50,), one_token=True,
                  e2e=252, e2e_service=251.6, lag=0.4, counted=True, in_window=True, good=True)),
    Row(5, "one token", "measure", 3062, 3062.1, 3062.2, 3772, prompt=50, out=1,
        chunks=(text(3762, 1),),
        # ttft 700; svc 699.8; tpot null, vacuous (no ICL term here); e2e 710; 709.8; lag 0.1+0.1
        want=Want(ttft=700, ttft_service=699.8, one_token=True, e2e=710, e2e_service=709.8, lag=0.2,
                  counted=True, in_window=True, good=True, vacuous=("tpot",))),
    Row(6, "ends last: its end is the window's end, and inside", "measure", 3810, 3810.1, 3810.2, 7200,
        prompt=60, out=41,
        chunks=(text(4210, 1), text(7110, 40), finish(7111), usage(7200)),
        # ttft 400; svc 399.8; tpot 2900/40; aft 2900/40; e2e 3390; 3389.8; lag 0.1+0.1
        want=Want(ttft=400, ttft_service=399.8, tpot=72.5, after_first=72.5, gaps=(2900,),
                  e2e=3390, e2e_service=3389.8, lag=0.2, counted=True, in_window=True, good=True)),
)

C = GoldenRun(
    key="c", load_value=2.0, mode="closed", window=(0, 7200), base_s=120, rows=C_ROWS,
    toml="""
name = "golden-c"
[model]
name = "golden"
[endpoint]
adapter = "openai"
url = "http://127.0.0.1:8000/v1"
[load]
mode = "closed"
concurrency = [2]
think_s = 1
count = 6
warmup_s = 0
repeats = 1
[slo]
ttft_ms = 1000
tpot_ms = 100
""" + ACCOUNTING,
    # counted: all 6. Ranks 3; 5.7 -> 6; 5.94 -> 6.
    figures={
        "ttft_p50_ms": 400, "ttft_p95_ms": 900, "ttft_p99_ms": 900,  # 200 300 [400] 500 700 [900]
        # 199.6 298.8 [399.8] 497.8 699.8 [899.8]
        "ttft_service_p50_ms": 399.8, "ttft_service_p95_ms": 899.8, "ttft_service_p99_ms": 899.8,
        # without 5: 50 72.5 [80] 100 [100.5]; ranks 2.5 -> 3; 4.75 -> 5; 5
        "tpot_p50_ms": 80, "tpot_p95_ms": 100.5, "tpot_p99_ms": 100.5,
        "e2e_p50_ms": 710, "e2e_p95_ms": 3390, "e2e_p99_ms": 3390,  # 252 702 [710] 710 1108 [3390]
        # 8 gaps: 50 100 100 [100] 101 200 200 [2900]; ranks 4; 7.6 -> 8; 8
        "icl_p50_ms": 100, "icl_p95_ms": 2900, "icl_p99_ms": 2900,
        # of 1, 3, 4: 50 100 [100] 100 [101]; ranks 3; 4.75 -> 5; 5
        "itl_p50_ms": 100, "itl_p95_ms": 101, "itl_p99_ms": 101,
        "client_lag_p50_ms": 0.2, "client_lag_p95_ms": 0.4, "client_lag_p99_ms": 0.4,  # 0.2x5 0.4
        "throughput_requests_per_s": 0.833333333333333,  # 6/7.2
        "throughput_output_tokens_per_s": 7.77777777777778,  # 3+6+3+2+1+41 = 56; 56/7.2
        "goodput_requests_per_s": 0.694444444444444,  # all but 3: 5/7.2
        "good_fraction": 0.833333333333333,  # 5/6
        "qualified_output_tokens_per_s": 7.36111111111111,  # 3+6+2+1+41 = 53; 53/7.2
        "cost_per_million_qualified_tokens": 226.415094339623,  # 0.012 * 1e6 / 53 = 12000/53
    },
    qualified_input=180,  # 10+20+40+50+60
    vacuous=1,  # 5
    outcomes={("measure", "ok"): 6},
)

# ── D ── nothing qualifies: an error, a timeout before output, and an answer that came too late ────────────────
# SLO: ttft 100. Window [0, 3600) = 0.001 h: 0.006 USD.

_EDGE = """
[model]
name = "golden"
[endpoint]
adapter = "openai"
url = "http://127.0.0.1:8000/v1"
[load]
mode = "open"
rates = [1]
duration_s = 3.6
warmup_s = 0
drain_s = 1
repeats = 1
[slo]
ttft_ms = 100
""" + ACCOUNTING

D = GoldenRun(
    key="d", load_value=1.0, mode="open", window=(0, 3600), base_s=180, toml='name = "golden-d"' + _EDGE,
    rows=(
        Row(1, "HTTP 400", "measure", 100, 100.1, 100.2, 110, outcome="http_error", status=400,
            # e2e 10; 9.8; lag 0.1+0.1
            want=Want(e2e=10, e2e_service=9.8, lag=0.2, counted=True, in_window=True)),
        Row(2, "first-byte timeout", "measure", 500, 500.1, 500.2, 2500.2, outcome="timeout", status=None,
            # e2e 2000.2; 2000; lag 0.1+0.1
            want=Want(e2e=2000.2, e2e_service=2000, lag=0.2, counted=True, in_window=True)),
        Row(3, "ok, five times too late", "measure", 1000, 1000.1, 1000.2, 1601, prompt=10, out=20,
            chunks=(text(1500, 10), text(1600, 10)),
            # ttft 500 > 100; svc 499.8; tpot 100/19; aft 100/10; e2e 601; 600.8; lag 0.1+0.1
            want=Want(ttft=500, ttft_service=499.8, tpot=5.26315789473684, after_first=10, gaps=(100,),
                      e2e=601, e2e_service=600.8, lag=0.2, counted=True, in_window=True)),
    ),
    # counted 3: ranks 1.5 -> 2; 2.85 -> 3; 3
    figures={
        "ttft_p50_ms": None, "ttft_p95_ms": None, "ttft_p99_ms": None,  # 500 inf inf
        "tpot_p50_ms": None, "tpot_p95_ms": None, "tpot_p99_ms": None,  # 5.26 inf inf
        "e2e_p50_ms": None, "e2e_p95_ms": None, "e2e_p99_ms": None,  # 601 inf inf
        "icl_p50_ms": 100, "icl_p95_ms": 100, "icl_p99_ms": 100,  # one gap
        "itl_p50_ms": None, "itl_p95_ms": None, "itl_p99_ms": None,  # ten tokens a chunk: no ITL anywhere
        "client_lag_p50_ms": 0.2, "client_lag_p95_ms": 0.2, "client_lag_p99_ms": 0.2,
        "throughput_requests_per_s": 0.277777777777778,  # 1/3.6
        "throughput_output_tokens_per_s": 5.55555555555556,  # 20/3.6
        "goodput_requests_per_s": 0,  # a known zero, not an unknown
        "good_fraction": 0,  # 0/3
        "qualified_output_tokens_per_s": 0,
        "cost_per_million_qualified_tokens": None,  # 0.006*1e6/0: at least something, at most 6000 as a bound
    },
    qualified_input=0,
    vacuous=0,
    outcomes={("measure", "ok"): 1, ("measure", "http_error"): 1, ("measure", "timeout"): 1},
)
D_COST_OF_ONE_TOKEN = 6000.0  # 0.006 USD * 1e6 / 1 token: no lower bound may exceed what one token would give

# ── E ── a good attempt whose token count nobody knows, inside the window ──────────────────────────────────────

E = GoldenRun(
    key="e", load_value=1.0, mode="open", window=(0, 3600), base_s=240, toml='name = "golden-e"' + _EDGE,
    rows=(
        Row(1, "good, 10 tokens", "measure", 100, 100.1, 100.2, 300, prompt=10, out=10,
            chunks=(text(180), text(290)),
            # ttft 80; svc 79.8; tpot 110/9; e2e 200; 199.8; lag 0.1+0.1
            want=Want(ttft=80, ttft_service=79.8, tpot=12.2222222222222, gaps=(110,),
                      e2e=200, e2e_service=199.8, lag=0.2, counted=True, in_window=True, good=True)),
        Row(2, "good (only TTFT is limited), tokens unknown", "measure", 500, 500.1, 500.2, 700, prompt=20,
            chunks=(text(590), text(690)),
            # ttft 90; svc 89.8; e2e 200; 199.8; lag 0.1+0.1
            want=Want(ttft=90, ttft_service=89.8, gaps=(100,),
                      e2e=200, e2e_service=199.8, lag=0.2, counted=True, in_window=True, good=True)),
    ),
    figures={
        "throughput_requests_per_s": 0.555555555555556,  # 2/3.6
        "goodput_requests_per_s": 0.555555555555556,
        "good_fraction": 1,  # 2/2
    },
    qualified_input=30,
    vacuous=0,
    outcomes={("measure", "ok"): 2},
)
E_UNKNOWN = (  # 10 tokens known + some unknown: none of these may stand without saying so
    "throughput_output_tokens_per_s", "qualified_output_tokens_per_s", "cost_per_million_qualified_tokens",
)

# ── F ── only an excluded attempt: fractions and quantiles have no value, and say why ──────────────────────────

F = GoldenRun(
    key="f", load_value=1.0, mode="open", window=(0, 3600), base_s=300, toml='name = "golden-f"' + _EDGE,
    rows=(
        Row(1, "cancelled by plan", "measure", 100, 100.1, 100.2, 300, outcome="cancelled", status=None,
            # e2e 200; 199.8; lag 0.1+0.1
            want=Want(e2e=200, e2e_service=199.8, lag=0.2, in_window=True)),
    ),
    figures={
        "ttft_p50_ms": None, "e2e_p50_ms": None, "tpot_p50_ms": None, "icl_p50_ms": None, "client_lag_p50_ms": None,
        "throughput_requests_per_s": 0, "goodput_requests_per_s": 0, "qualified_output_tokens_per_s": 0,
        "good_fraction": None,  # 0/0
        "cost_per_million_qualified_tokens": None,
    },
    qualified_input=0,
    vacuous=0,
    outcomes={("measure", "cancelled"): 1},
)

# fmt: on
