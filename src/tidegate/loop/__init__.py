"""The rule: one loop for the live cluster, the replay and the forecast. They differ in their ports only."""
