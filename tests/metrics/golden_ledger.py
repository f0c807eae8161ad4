"""The golden ledger: attempts written by hand, and every figure of the definitions worked out on paper.

Times are milliseconds since the run's start. Beside each row stands what the definitions give, and in
comments the sum a reader can redo. Nothing in this file is computed by code.

How a sum reads: `ttft a-b` is first visible chunk minus scheduled; `svc` the same from sent; `tpot (last
output chunk - first output chunk)/(output_tokens - 1)`; `aft` the same span over the tokens after the first
chunk; `lag (dispatched - due) + (sent - ready)`.

Where the definitions leave a choice, the reading an auditor would take, used throughout:

 1. An SLO limit is inclusive (value <= limit), to the nanosecond. A bare number means {max = number}.
 2. TPOT needs two output chunks as well as two output tokens: one chunk spans no time, and 0 ms per token
    would be a figure nobody measured. Then it is null, and on an `ok` attempt met vacuously.
 3. TPOT null because output_tokens is *unknown* is not vacuous: a server that hides its counts hasn't shown
    that it met the limit. The term is not met. Vacuous stays for one token or one chunk, as written.
 4. TTFT over quantiles: an `ok` attempt that shows nothing though tokens came has its first output chunk; without
    any token it counts as +inf, as a failed one does.
 5. TPOT over quantiles: a bad attempt without a TPOT is +inf (else failures leave the denominator in silence);
    an `ok` one without (one token, one chunk, unknown count) is left out, and n says so.
 6. ICL and ITL quantiles pool the gaps that were seen in counted attempts, bad ones included; no gap is invented.
 7. Client lag is null where nothing was sent; its quantiles run over counted attempts that were sent.
 8. Under accounting unit "attempt" a retry is an attempt of its own, timed from its own scheduled time; its
    failed first try stays counted as bad.
 9. Throughput counts `ok` attempts ended in the window (a server that refuses fast has no throughput), of any
    phase: one scheduled in warmup and ended in the window counts, one ended exactly at the window's end doesn't.
    An attempt scheduled in drain can't end inside the window.
10. `good` is a property of an attempt wherever it lies; goodput takes good ones by end, good fraction by schedule.
11. With `count`, the window ends at the last end and that last attempt is inside it.
12. quality {"passed": false} makes an attempt not good; no quality recorded is no objection (nothing was judged).
13. Qualified input tokens are prompt_tokens, cached ones among them.
14. An attempt whose output_tokens is unknown makes a token rate a bound: it isn't counted as 0 in silence.
15. open_capped: due = slot grant, whether the worker took the attempt up before the grant or after it.
16. No qualified tokens: the cost has no value, only a lower bound, at most the window's cost per one token.
"""

from tests.metrics.golden_build import (
    ACCOUNTING,
    GoldenRun,
    Row,
    Want,
    comment,
    empty,
    error,
    finish,
    role,
    text,
    usage,
)
from tests.metrics.golden_more import B, C, D, E, F

# fmt: off
# (the sums stand beside the rows; a formatter would pull them apart)

# ── A ── open loop: warmup [0, 1000), window [1000, 4600), drain to 6600 ───────────────────────────────────────
# SLO: ttft 500, tpot 50, every gap 200, e2e 2000. Window 3.6 s = 0.001 h, so it costs 6 * 0.001 = 0.006 USD.

A_ROWS = (
    Row(1, "warmup, ended in warmup, new connection", "warmup", 100, 100.1, 101.2, 242,
        connected=101.1, prompt=10, out=2,
        chunks=(role(150), text(200, 1), text(240, 1), finish(241), usage(241.5)),
        # ttft 200-100; svc 200-101.2; tpot 40/1; aft 40/1; e2e 242-100; 242-101.2; lag 0.1 + (101.2-101.1)
        want=Want(ttft=100, ttft_service=98.8, tpot=40, after_first=40, gaps=(40,), one_token=True,
                  e2e=142, e2e_service=140.8, lag=0.2, good=True)),
    Row(2, "warmup, ended exactly at the window's start: inside", "warmup", 800, 800.1, 800.3, 1000, prompt=11, out=2,
        chunks=(role(850), text(900, 1), text(940, 1), finish(941)),
        # ttft 900-800; svc 900-800.3; tpot 40/1; e2e 1000-800; 1000-800.3; lag 0.1 + (800.3-800.1)
        want=Want(ttft=100, ttft_service=99.7, tpot=40, after_first=40, gaps=(40,), one_token=True,
                  e2e=200, e2e_service=199.7, lag=0.3, in_window=True, good=True)),
    Row(3, "warmup, ended in the window", "warmup", 900, 900.1, 900.4, 1082, prompt=20, out=3,
        chunks=(role(950), text(1000, 1), text(1040, 1), text(1080, 1), finish(1081)),
        # ttft 1000-900; svc 1000-900.4; tpot 80/2; aft 80/2; e2e 1082-900; 1082-900.4; lag 0.1+0.3
        want=Want(ttft=100, ttft_service=99.6, tpot=40, after_first=40, gaps=(40, 40), one_token=True,
                  e2e=182, e2e_service=181.6, lag=0.4, in_window=True, good=True)),
    Row(4, "plain; role chunk long before the text; TTFT and TPOT exactly at their limits", "measure",
        1000, 1000.2, 1000.4, 1652, prompt=30, out=4,
        chunks=(role(1010), text(1500, 1), text(1550, 1), text(1600, 1), text(1650, 1), finish(1651), usage(1652)),
        # ttft 1500-1000 = limit; svc 1500-1000.4; tpot 150/3 = limit; aft 150/3; e2e 652; 1652-1000.4; lag 0.2+0.2
        want=Want(ttft=500, ttft_service=499.6, tpot=50, after_first=50, gaps=(50, 50, 50), one_token=True,
                  e2e=652, e2e_service=651.6, lag=0.4, counted=True, in_window=True, good=True)),
    Row(5, "TTFT 1 ns over its limit; chunk tokens unknown", "measure", 1100, 1100.1, 1100.2, 1682, prompt=40, out=9,
        chunks=(role(1110), text(1600.000001), text(1640.000001), text(1680.000001), finish(1681), usage(1682)),
        # ttft 1600.000001-1100; svc -1100.2; tpot 80/8; aft unknown; e2e 582; 1682-1100.2; lag 0.1+0.1
        want=Want(ttft=500.000001, ttft_service=499.800001, tpot=10, gaps=(40, 40),
                  e2e=582, e2e_service=581.8, lag=0.2, counted=True, in_window=True)),
    Row(6, "several known tokens a chunk; last text carries the finish; usage-only last chunk", "measure",
        1200, 1200.1, 1203.3, 1513, connected=1203.1, prompt=50, out=10,
        chunks=(text(1310, 4), text(1410, 4), text(1510, 2), usage(1512)),
        # ttft 1310-1200; svc 1310-1203.3; tpot 200/9; aft 200/(4+2); e2e 313; 1513-1203.3; lag 0.1 + (1203.3-1203.1):
        # the 3 ms of connecting are response latency, not lag
        want=Want(ttft=110, ttft_service=106.7, tpot=22.2222222222222, after_first=33.3333333333333, gaps=(100, 100),
                  e2e=313, e2e_service=309.7, lag=0.3, counted=True, in_window=True, good=True)),
    Row(7, "zero text: only empty deltas", "measure", 1300, 1300.1, 1300.6, 1462, prompt=60, out=3,
        chunks=(role(1390), empty(1400, 1), empty(1430, 1), empty(1460, 1), finish(1461), usage(1462)),
        # nothing visible, so from the first output chunk: ttft 1400-1300; svc 1400-1300.6; tpot 60/2 (each carried a
        # token); aft 60/2; e2e 162; 161.4; lag 0.1+0.5
        want=Want(ttft=100, ttft_service=99.4, tpot=30, after_first=30, gaps=(30, 30), one_token=True,
                  e2e=162, e2e_service=161.4, lag=0.6, counted=True, in_window=True, good=True)),
    Row(8, "one token", "measure", 1400, 1400.1, 1400.2, 1460, prompt=70, out=1,
        chunks=(text(1450, 1), finish(1451), usage(1452)),
        # ttft 50; svc 49.8; tpot 0/0: null; no gap: both met vacuously; e2e 60; 59.8; lag 0.1+0.1
        want=Want(ttft=50, ttft_service=49.8, one_token=True, e2e=60, e2e_service=59.8, lag=0.2,
                  counted=True, in_window=True, good=True, vacuous=("tpot", "icl"))),
    Row(9, "one gap over the limit, TPOT fine", "measure", 1700, 1700.3, 1700.4, 2003, prompt=80, out=31,
        chunks=(text(1790), text(1800), text(2001), finish(2002)),
        # ttft 90; svc 1790-1700.4; tpot 211/30; gap 2001-1800 = 201 > 200; e2e 303; 2003-1700.4; lag 0.3+0.1
        want=Want(ttft=90, ttft_service=89.6, tpot=7.03333333333333, gaps=(10, 201),
                  e2e=303, e2e_service=302.6, lag=0.4, counted=True, in_window=True)),
    Row(10, "gap exactly at the limit, with comment pings in it", "measure", 1800, 1800.1, 1800.3, 2132,
        prompt=90, out=5,
        chunks=(role(1810), text(1930, 2), comment(1980), comment(2080), text(2130, 3), finish(2131), usage(2132)),
        # ttft 130; svc 129.7; tpot 200/4 = limit; aft 200/3; gap 2130-1930 = limit; e2e 332; 331.7; lag 0.1+0.2
        want=Want(ttft=130, ttft_service=129.7, tpot=50, after_first=66.6666666666667, gaps=(200,),
                  e2e=332, e2e_service=331.7, lag=0.3, counted=True, in_window=True, good=True)),
    Row(11, "an empty delta before the first visible chunk", "measure", 1900, 1900.1, 1900.2, 2022, prompt=100, out=3,
        chunks=(empty(1930, 1), text(1980, 1), text(2020, 1), finish(2021)),
        # ttft 1980-1900 (visible); svc 79.8; tpot from the first *output* chunk: (2020-1930)/2; aft 90/2; e2e 122;
        # 121.8
        want=Want(ttft=80, ttft_service=79.8, tpot=45, after_first=45, gaps=(50, 40), one_token=True,
                  e2e=122, e2e_service=121.8, lag=0.2, counted=True, in_window=True, good=True)),
    Row(12, "first try of a task: rejected with 503", "measure", 2000, 2000.1, 2000.3, 2010,
        outcome="rejected", status=503, task="task-retried",
        # e2e 2010-2000; 2010-2000.3; lag 0.1+0.2
        want=Want(e2e=10, e2e_service=9.7, lag=0.3, counted=True, in_window=True)),
    Row(13, "second try of it (due 100 ms after the 503 ended): ok", "measure", 2110, 2110.1, 2110.2, 2222,
        task="task-retried", try_=1, prompt=110, out=2,
        chunks=(text(2180, 1), text(2220, 1), finish(2221)),
        # ttft 2180-2110; svc 69.8; tpot 40/1; e2e 2222-2110; 111.8; lag 0.1+0.1
        want=Want(ttft=70, ttft_service=69.8, tpot=40, after_first=40, gaps=(40,), one_token=True,
                  e2e=112, e2e_service=111.8, lag=0.2, counted=True, in_window=True, good=True)),
    Row(14, "HTTP 500", "measure", 2300, 2300.2, 2300.3, 2320, outcome="http_error", status=500,
        # e2e 20; 19.7; lag 0.2+0.1
        want=Want(e2e=20, e2e_service=19.7, lag=0.3, counted=True, in_window=True)),
    Row(15, "connection refused: nothing sent", "measure", 2400, 2400.1, None, 2402, new=True,
        outcome="connect_error", status=None, stream=False,
        # e2e 2; from sent: null; lag: null
        want=Want(e2e=2, counted=True, in_window=True)),
    Row(16, "lost after sending, before a status", "measure", 2500, 2500.1, 2500.2, 2800,
        outcome="disconnected", status=None,
        # e2e 300; 299.8; lag 0.1+0.1
        want=Want(e2e=300, e2e_service=299.8, lag=0.2, counted=True, in_window=True)),
    Row(17, "total timeout (2 s) after some output", "measure", 2550, 2550.1, 2550.3, 4550.3, outcome="timeout",
        chunks=(role(2560), text(2700), text(2755)),
        # ttft 150 (output came, so it counts); svc 149.7; token count unknown: no tpot; e2e 2000.3; 2000; lag 0.1+0.2
        want=Want(ttft=150, ttft_service=149.7, gaps=(55,),
                  e2e=2000.3, e2e_service=2000, lag=0.3, counted=True, in_window=True)),
    Row(18, "error object in a 200 stream after output", "measure", 2600, 2600.1, 2600.2, 2971,
        outcome="stream_error", error="server overloaded",
        chunks=(role(2610), text(2720), text(2760), text(2965), error(2970)),
        # ttft 120; svc 119.8; gaps 40, 205; e2e 371; 370.8; lag 0.1+0.1
        want=Want(ttft=120, ttft_service=119.8, gaps=(40, 205),
                  e2e=371, e2e_service=370.8, lag=0.2, counted=True, in_window=True)),
    Row(19, "cancelled by plan after output: excluded", "measure", 2700, 2700.1, 2700.2, 2850, outcome="cancelled",
        chunks=(text(2800),),
        # ttft 100; svc 99.8; e2e 150; 149.8; lag 0.1+0.1; excluded: not counted
        want=Want(ttft=100, ttft_service=99.8, e2e=150, e2e_service=149.8, lag=0.2, in_window=True)),
    Row(20, "not streamed: one text chunk at the end", "measure", 2800, 2800.1, 2800.3, 3200, prompt=120, out=12,
        chunks=(text(3200, 12),),
        # ttft 400; svc 399.7; one chunk: no tpot, no gap, both vacuous; e2e 400; 399.7; lag 0.1+0.2
        want=Want(ttft=400, ttft_service=399.7, e2e=400, e2e_service=399.7, lag=0.3,
                  counted=True, in_window=True, good=True, vacuous=("tpot", "icl"))),
    Row(21, "a probe inside the window: in no figure", "measure", 3000, 3000.1, 3000.2, 3050,
        role="probe", prompt=5, out=1,
        chunks=(text(3020, 1), finish(3021))),
    Row(22, "ok, output_tokens unknown; ended after the window", "measure", 3900, 3900.1, 3900.5, 4650,
        chunks=(text(4040), text(4200), text(4360), text(4520), text(4649), finish(4650)),
        # ttft 140; svc 139.5; tpot unknown: not met, not vacuous; gaps 160 160 160 129; e2e 750; 749.5; lag 0.1+0.4
        want=Want(ttft=140, ttft_service=139.5, gaps=(160, 160, 160, 129),
                  e2e=750, e2e_service=749.5, lag=0.5, counted=True)),
    Row(23, "good, ended exactly at the window's end: outside, yet in the good fraction", "measure",
        4200, 4200.1, 4200.2, 4600, prompt=130, out=3,
        chunks=(text(4500, 1), text(4550, 1), text(4599, 1), usage(4600)),
        # ttft 300; svc 299.8; tpot 99/2; aft 99/2; e2e 400; 399.8; lag 0.1+0.1
        want=Want(ttft=300, ttft_service=299.8, tpot=49.5, after_first=49.5, gaps=(50, 49), one_token=True,
                  e2e=400, e2e_service=399.8, lag=0.2, counted=True, good=True)),
    Row(24, "unfinished: cut at the end of drain after output", "measure", 4500, 4500.1, 4500.2, 6600,
        outcome="unfinished",
        chunks=(text(4700), text(4752)),
        # ttft 200; svc 199.8; gap 52; e2e 2100; 2099.8; lag 0.1+0.1
        want=Want(ttft=200, ttft_service=199.8, gaps=(52,), e2e=2100, e2e_service=2099.8, lag=0.2, counted=True)),
    Row(25, "unsent", "measure", 4550, None, None, None, outcome="unsent", status=None, stream=False,
        want=Want(counted=True)),
    Row(26, "drain, ok", "drain", 4700, 4700.1, 4700.2, 4900, prompt=140, out=2,
        chunks=(text(4800, 1), text(4840, 1)),
        # ttft 100; svc 99.8; tpot 40/1; e2e 200; 199.8; lag 0.1+0.1
        want=Want(ttft=100, ttft_service=99.8, tpot=40, after_first=40, gaps=(40,), one_token=True,
                  e2e=200, e2e_service=199.8, lag=0.2, good=True)),
    Row(27, "drain, unfinished without output", "drain", 6500, 6500.1, 6500.2, 6600, outcome="unfinished", status=None,
        want=Want(e2e=100, e2e_service=99.8, lag=0.2)),
)

A = GoldenRun(
    key="a", load_value=7.0, mode="open", window=(1000, 4600), base_s=0, rows=A_ROWS,
    toml="""
name = "golden-a"
[model]
name = "golden"
[endpoint]
adapter = "openai"
url = "http://127.0.0.1:8000/v1"
[load]
mode = "open"
process = "poisson"
rates = [7]
duration_s = 3.6
warmup_s = 1
drain_s = 2
repeats = 1
[slo]
ttft_ms = 500
tpot_ms = 50
icl_ms = { max = 200 }
e2e_ms = { max = 2000 }
""" + ACCOUNTING,
    # counted: 4-18 (15 rows), 20, 22, 23, 24, 25 = 20. 50 % of 20 is rank 10, 95 % rank 19, 99 % rank 20 (19.8).
    figures={
        # 15 finite, 5 inf (12 14 15 16 25): 50 70 80 90 100 110 120 130 140 [150] 200 300 400 500 500.000001 inf...
        "ttft_p50_ms": 150, "ttft_p95_ms": None, "ttft_p99_ms": None,
        # 49.8 69.8 79.8 89.6 99.4 106.7 119.8 129.7 139.5 [149.7] 199.8 299.8 399.7 499.6 499.800001 inf...
        "ttft_service_p50_ms": 149.7, "ttft_service_p95_ms": None, "ttft_service_p99_ms": None,
        # 20 less 8, 20, 22 = 17: 7.03 10 22.2 30 40 45 49.5 50 [50], then 8 inf (12 14-18 24 25); rank 8.5 -> 9;
        # 16.15 -> 17: inf
        "tpot_p50_ms": 50, "tpot_p95_ms": None, "tpot_p99_ms": None,
        # 12 ok: 60 112 122 162 303 313 332 400 400 [582] 652 750, then 8 inf
        "e2e_p50_ms": 582, "e2e_p95_ms": None, "e2e_p99_ms": None,
        # 25 gaps: 10 | 30 30 | 40x5 | 49 | 50x5 (ranks 10-14) | 52 55 | 100 100 | 129 | 160x3 | 200 | 201 | 205
        # ranks 12.5 -> 13; 23.75 -> 24; 24.75 -> 25
        "icl_p50_ms": 50, "icl_p95_ms": 201, "icl_p99_ms": 205,
        # gaps of 4, 7, 11, 13, 23 (every output chunk one token): 30 30 40 40 [49] 50x5; ranks 5; 9.5 -> 10; 10
        "itl_p50_ms": 49, "itl_p95_ms": 50, "itl_p99_ms": 50,
        # 20 less 15 and 25 (nothing sent) = 18: 0.2x8 0.3x6 0.4x2 0.5 0.6; ranks 9; 17.1 -> 18; 18
        "client_lag_p50_ms": 0.3, "client_lag_p95_ms": 0.6, "client_lag_p99_ms": 0.6,
        # ok and ended in [1000, 4600): 2 3 4 5 6 7 8 9 10 11 13 20 = 12; 12/3.6
        "throughput_requests_per_s": 3.33333333333333,
        # their tokens 2+3+4+9+10+3+1+31+5+3+2+12 = 85; 85/3.6
        "throughput_output_tokens_per_s": 23.6111111111111,
        # good among them: 2 3 4 6 7 8 10 11 13 20 = 10; 10/3.6
        "goodput_requests_per_s": 2.77777777777778,
        # good and counted: 4 6 7 8 10 11 13 20 23 = 9 of 20
        "good_fraction": 0.45,
        # 2+3+4+10+3+1+5+3+2+12 = 45; 45/3.6
        "qualified_output_tokens_per_s": 12.5,
        # 0.006 * 1e6 / 45 = 6000/45
        "cost_per_million_qualified_tokens": 133.333333333333,
    },
    qualified_input=661,  # 11+20+30+50+60+70+90+100+110+120
    vacuous=2,  # 8 and 20 (two terms each)
    outcomes={
        ("warmup", "ok"): 3,
        ("measure", "ok"): 12,  # 4-11 (8), 13, 20, 22, 23
        ("measure", "rejected"): 1, ("measure", "http_error"): 1, ("measure", "connect_error"): 1,
        ("measure", "disconnected"): 1, ("measure", "timeout"): 1, ("measure", "stream_error"): 1,
        ("measure", "cancelled"): 1, ("measure", "unfinished"): 1, ("measure", "unsent"): 1,
        ("drain", "ok"): 1, ("drain", "unfinished"): 1,
    },
)

# fmt: on

RUNS = (A, B, C, D, E, F)
