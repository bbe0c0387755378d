"""Where trueup meets a trainer: one thin module each, imported by name (`trueup.adapters.trl`).

An adapter translates and decides nothing: rows of the trainer become groups, one `AnchoredReward.step` scores them,
and its rewards or advantages go back in the trainer's own terms. "No verdict" becomes whatever that trainer leaves
out of an update, never a 0. `docs/trainers.md` says which seam each one uses and how it was tested.
"""
