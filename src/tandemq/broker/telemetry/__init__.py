"""What a broker shows of itself.

traffic.py        counts: messages and bytes by topic and group
progress.py       derives from tables and store: how full queues are, how far groups have read
snapshot.py       takes one picture of everything that is a single number
prometheus.py     renders the picture for GET /metrics
runtime_info.py   renders the picture for GET_BROKER_RUNTIME_INFO
"""
