"""``manyscale view``: a local page of runs, their reports and their timelines.

``runs`` lists run directories, ``tables`` reads timeline tables as segments, ``segments`` cuts them into pieces by time
on disk, ``tiles`` draws parts of them as grids of categories, ``timelines`` holds what is open, ``server`` answers the
pages in ``pages/``.
"""
