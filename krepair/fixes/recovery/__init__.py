"""Fix ``recovery``: the work of a start after an unclean stop is done beforehand."""
