"""A system made ready for one run: restarted, flushed and primed as the manifest says."""

import dataclasses

from tfbench.core.errors import EndpointError, Interrupted
from tfbench.manifest import RunPlan
from tfbench.study.prime import cache_facts, prime
from tfbench.study.run_one import StudyContext
from tfbench.study.watch import Watcher


def ready(context: StudyContext, plan: RunPlan, watcher: Watcher, kept: str = "") -> StudyContext:
    """`context` for the run of `plan`, whose system it leaves ready; `kept` says what a failure leaves behind.

    Raises EndpointError where a hook fails or nobody answers, Interrupted after Ctrl-C.
    """
    life = context.lifecycle
    if life is None:
        return context
    more = f"; {kept}" if kept else ""
    try:
        life.begin(plan.repeat, watcher)
        life.flush(watcher)
        headers = dict(context.headers)
        primes = prime(
            context.frozen.manifest,
            plan,
            life.url,
            headers,
            life.redactor,
            watcher,
            salt=context.salt,
            include_usage=life.observed["include_usage"],
        )
    except EndpointError as error:
        raise EndpointError(f"{error}{more}") from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: {kept}" if kept else "interrupted") from None
    flushed = life.manifest.hooks.flush is not None
    return dataclasses.replace(
        context,
        target=life.target or context.target,
        observed={
            **life.observed,
            "cache": cache_facts(life.manifest, len(primes), flushed=flushed, salt=context.salt),
        },
        requests_beside=(*life.take_probe(), *primes),
    )
