"""The replay: recorded agent sessions run by many processes over both tiers, and the proof that both agree.

::

    recording ─▶ turns ─▶ agents (processes) ─▶ Redis ─▶ workers (processes) ─▶ SQL
        └──────▶ model ─────────▶ verification ◀── hot read, cold read, rows ──┘
"""
