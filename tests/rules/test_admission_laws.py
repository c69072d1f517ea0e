"""Laws of the admission cap under random loads: nothing partial, nobody starved, no rate beaten."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kvstrata.core.admission import AdmissionConfig, Need

from .engine import Engine, Job

TOTAL = 100
MOST_S = 0.5  # longest load and longest run of a job
tenants = st.sampled_from(["", "a", "b"])
needs = st.builds(
    Need,
    blocks=st.integers(0, TOTAL + 5),
    load_bytes=st.just(0) | st.integers(0, 1000),
    tenant=tenants,
)
jobs = st.builds(
    Job,
    arrival_s=st.floats(0, 2),
    need=needs,
    load_s=st.floats(0, MOST_S),
    run_s=st.floats(0, MOST_S),
    deadline_s=st.none(),
    cancelled=st.sampled_from(["never", "loading", "running"]),
)
configs = st.builds(
    AdmissionConfig,
    bytes_per_s=st.none() | st.floats(200, 5000),
    burst_bytes=st.integers(1, 2000),
    max_recoveries=st.none() | st.integers(1, 4),
    max_recovery_bytes=st.none() | st.integers(100, 2000),
    ageing_s=st.floats(0, 2),
    deadline_s=st.none(),
    max_waiting=st.just(1024),
    tenant_bytes=st.none() | st.dictionaries(tenants, st.integers(0, 2000), max_size=2),
)


def can_fit_alone(config: AdmissionConfig, need: Need) -> bool:
    most = config.max_recovery_bytes
    return (
        need.blocks <= TOTAL
        and (most is None or need.load_bytes <= most)
        and need.load_bytes <= config.quota(need.tenant)
    )


@settings(deadline=None, max_examples=100)
@given(config=configs, work=st.lists(jobs, max_size=25))
def test_whatever_fits_alone_is_served_and_nothing_is_held_while_waiting(
    config: AdmissionConfig, work: list[Job]
) -> None:
    engine = Engine(config, TOTAL, work)
    engine.run()
    assert engine.most_held_while_waiting == 0
    fits = {ticket for ticket, job in enumerate(work) if can_fit_alone(config, job.need)}
    assert set(engine.finished) == fits
    assert set(engine.denied) == set(range(len(work))) - fits
    assert all(denied.retry_after_s is None for denied in engine.denied.values())
    stats = engine.admission.snapshot()
    assert (stats.promised_blocks, stats.waiting) == (0, 0)
    assert (stats.recoveries, stats.recovery_bytes) == (0, 0)
    assert (stats.num_granted, stats.num_denied) == (len(fits), len(engine.denied))


@settings(deadline=None, max_examples=100)
@given(config=configs, work=st.lists(jobs, max_size=25), deadline_s=st.floats(0, 1))
def test_with_a_deadline_every_answer_comes_in_time(
    config: AdmissionConfig, work: list[Job], deadline_s: float
) -> None:
    for job in work:
        job.deadline_s = deadline_s
    engine = Engine(config, TOTAL, work)
    engine.run()
    assert len(engine.finished) + len(engine.denied) == len(work)
    for ticket, time_s in engine.granted_s.items():
        assert time_s <= work[ticket].arrival_s + deadline_s
    for ticket, denied in engine.denied.items():
        assert (denied.limit == "deadline") == can_fit_alone(config, work[ticket].need)


@settings(deadline=None, max_examples=100)
@given(rate=st.floats(100, 5000), burst=st.integers(1, 2000), work=st.lists(jobs, max_size=25))
def test_no_window_beats_the_rate_by_more_than_the_burst_and_the_largest_need(
    rate: float, burst: int, work: list[Job]
) -> None:
    engine = Engine(AdmissionConfig(bytes_per_s=rate, burst_bytes=burst), TOTAL, work)
    engine.run()
    largest = max((num_bytes for _, num_bytes in engine.loads), default=0)
    for first, (begin_s, _) in enumerate(engine.loads):
        total = 0
        for end_s, num_bytes in engine.loads[first:]:
            total += num_bytes
            assert total <= burst + largest + rate * (end_s - begin_s) + 1e-3


@settings(deadline=None, max_examples=25)
@given(
    ageing_s=st.floats(0, 1),
    small=st.integers(1, 40),
    run_s=st.floats(0.05, MOST_S),
    load_bytes=st.sampled_from([0, 100]),
    every_s=st.floats(0.02, 0.2),
)
def test_a_stream_of_small_requests_does_not_starve_a_large_one(
    ageing_s: float, small: int, run_s: float, load_bytes: int, every_s: float
) -> None:
    config = AdmissionConfig(
        bytes_per_s=2000.0, burst_bytes=200, max_recoveries=2, ageing_s=ageing_s
    )
    stream = [
        Job(number * every_s, Need(small, load_bytes), load_s=0.01, run_s=run_s)
        for number in range(int(6 / every_s))
    ]
    large = Job(0.5, Need(TOTAL, 400), load_s=0.01, run_s=0.1)
    engine = Engine(config, TOTAL, [large, *stream])
    engine.run(until_s=6.0)
    # Those before it in the queue, ageing, the bucket, what runs, and a guess too long.
    earlier_s = len([job for job in stream if job.arrival_s <= 0.5]) * (0.05 + run_s)
    bound = earlier_s + ageing_s + 400 / 2000.0 + 0.01 + run_s + 1.0
    if 0.5 + bound <= 6.0:
        assert engine.granted_s[0] <= 0.5 + bound


@settings(deadline=None, max_examples=25)
@given(config=configs, work=st.lists(jobs, max_size=15))
def test_the_same_calls_get_the_same_answers(config: AdmissionConfig, work: list[Job]) -> None:
    runs = [Engine(config, TOTAL, work) for _ in range(2)]
    for engine in runs:
        engine.run()
    assert runs[0].granted_s == runs[1].granted_s
    assert runs[0].admission.snapshot() == runs[1].admission.snapshot()
