"""Statistics of anchored rewards: arrays in, arrays out.

Nothing here knows a rollout, a scorer or a trainer. Arrays are float64 with NaN for unscored. Shapes are in the
names: `_GN` is groups × rollouts of a group (ragged groups are padded with NaN at the end of the row), `_G` one
entry per group, `_P` flat over rollouts or pairs. Leading axes in front of these are independent runs.
"""
