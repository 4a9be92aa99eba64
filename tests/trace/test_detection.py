"""How well bursts are told on recorded arrivals; docs/decisions/0019 has the figures."""

import pytest

from tidegate.app.trials import detect

HELIOS = "burst/helios_venus_arrivals_10min_2020-04_to_08.csv.gz"


@pytest.mark.slow
def test_on_the_helios_arrivals(real_trace):
    found = detect(real_trace(HELIOS), "submit_gpu_job", None, seed=1)
    assert found["quiet"]["false_alarms_a_week"] <= 0.5
    assert found["labelled"]["false_alarms_a_week"] <= 0.5
    told = found["put_in"]["all"]
    assert told["found"] >= 0.95 * told["bursts"]
    assert told["rising_delay_median_s"] <= 300
    assert told["rising_delay_p90_s"] <= 600
