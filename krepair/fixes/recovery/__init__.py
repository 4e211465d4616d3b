"""Fix ``recovery``: do the work of a start after an unclean stop beforehand."""
