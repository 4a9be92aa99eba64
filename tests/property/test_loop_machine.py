"""The real loop between a faulty engine and a scripted inbox, driven by Hypothesis.

`tests/kit/sim.py` says what must hold: after every turn, and around every cycle.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.kit import play
from tests.kit.choose import Drawn
from tests.kit.faulty_engine import CALM, STORM, FaultyEngine
from tests.kit.scenario import nodes_of, policy_of
from tests.kit.sim import Sim
from tidegate.loop.loop import Cadence

EXAMPLES = 150
STEPS = 25


def run_time(task: int, attempt: int) -> int:
    return (1, 5, 10, 20, 50, 130)[(task // 7 + task + attempt) % 6]


class Cluster(RuleBasedStateMachine):
    sim: Sim
    even: bool

    @initialize(data=st.data(), even=st.booleans(), seed=st.integers(0, 99), cadence=st.sampled_from(Cadence))
    def begin(self, data: st.DataObject, even: bool, seed: int, cadence: Cadence):
        chooser = Drawn(data)
        self.even = even
        engine = FaultyEngine(run_time, seed, chooser.pick((CALM, STORM)))
        self.sim = Sim(engine, nodes_of(chooser, even=even), policy_of(chooser), cadence)

    @rule(data=st.data())
    def submit(self, data: st.DataObject):
        play.submit(self.sim, Drawn(data), even=self.even)

    @rule(data=st.data())
    def command_a_job(self, data: st.DataObject):
        play.command_a_job(self.sim, Drawn(data))

    @rule(data=st.data(), step=st.sampled_from((play.command_a_node, play.change_a_node, play.break_a_node)))
    def trouble_a_node(self, data: st.DataObject, step):
        step(self.sim, Drawn(data))

    @rule(data=st.data())
    def change_policy(self, data: st.DataObject):
        play.change_policy(self.sim, Drawn(data))

    @rule(ms=st.sampled_from((0, 1, 5, 10, 25, 60)))
    def wait(self, ms: int):
        self.sim.advance(ms)

    @rule(
        data=st.data(),
        step=st.sampled_from((play.mend_the_nodes, play.weather, play.restart, play.wait_long, play.spoil_a_node)),
    )
    def other(self, data: st.DataObject, step):
        step(self.sim, Drawn(data))

    def teardown(self):
        if not hasattr(self, "sim"):
            return
        self.sim.drain()
        numbers = sorted(self.sim.digests)
        self.sim.check_recovery(numbers[:: max(1, len(numbers) // 20)])


def test_the_loop_holds_under_faults():
    run_state_machine_as_test(Cluster, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS))
