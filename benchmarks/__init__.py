"""What saving costs, measured beside other savers: one file a question, `python -m benchmarks` asks them."""

WORKLOADS = (
    "chat",
    "wide",
    "resume",
    "history",
    "concurrency",
    "fanout",
    "maintenance",
    "big_state",
    "namespaces",
    "timetravel",
    "objects",
    "tiered",
    "growth",
    "sampled",
    "watchdog",
    "life",
    "roundtrips",
    "memory",
    "import_time",
    "profile",
)
