"""A cluster, its schedulers and injected faults, in one thread, in virtual time, from a seed.

python -m tests.sim --seeds 0:500          many worlds
python -m tests.sim --seed 17 --trace      one of them again, with its log
"""
