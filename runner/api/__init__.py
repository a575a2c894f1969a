"""What a program calls after ``import manyscale``, and what the commands are shells around: functions with typed
options, and results that show themselves. ``manyscale`` (runner/_root) hands them out by name, each loaded when it is
used."""
