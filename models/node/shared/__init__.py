"""An analytical node: task instances whose times follow from profiles and from what runs beside them, as time passes.

* ``piece_lines``: the lines that each piece of a task instance uses, once each, in the order of first uses. Knows no
  machine.
* ``occupancy``: what private and shared caches hold, piece by piece: the level that serves each first use of a line, by
  who used it last and what was used since.
* ``few_lines``: some of these, which stand for all where pieces use many.
* ``last_uses``: which of the uses of a run last in caches.
* ``windows``: executions of some pieces, which stand for all of them on the core of any machine.
* ``queues``: how long a line waits for others where caches and DRAM are shared.
* ``costs``: what a piece takes by the levels that serve its lines and by how long lines wait.
* ``run``: all of it in the order of time, with the scheduler of the detailed model.
"""
