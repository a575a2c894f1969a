"""Data only: ``host/`` says where the simulator runs, ``target/`` describes machines whose time is predicted."""
