"""Research: clarify if need be, plan, work on the steps side by side, bring their findings together."""
