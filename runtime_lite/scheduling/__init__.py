"""Schedules the work of one device by pure functions of clock, queues and cost table, without threads or I/O.

- Task (task_at), Key (key_of), ServiceClass: FIRST_PACKET, STEP, CHUNK, INTERACTIVE, UTTERANCE, BULK
- CostTable: what a run costs, corrected by every run; costs_of_graph fills it from a bundle
- Scheduler: the rule; Policy is what was settled by measurement
- Clock: monotonic nanoseconds; VirtualClock in tests and planner; simulate runs the scheduler on a virtual device
"""
