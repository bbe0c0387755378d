"""Travel-planning tasks: tables, constraints, a proven best plan. See docs/plans.md."""
