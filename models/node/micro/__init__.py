"""Task instances without their instructions: micro-profiles that know no machine, and what a core makes of them.

Joining instances in time is another's matter: models/node/shared does, with lines of its own, and ``manyscale plan``
asks what instances take alone. The contract, in three steps. Each costs what it says, and none goes over the
instructions but the first.

1. ``collect.collect_profiles(program, stream, pieces, workload)`` -> ``profiles.MicroProfiles``. Once per trace, cut of
   loops and line size; no machine. One pass over accesses. Of each class of instances (one task type, about one length)
   a few are *sampled*, spread over the run; of these, *windows* of consecutive block executions are kept, with the
   places where a branch is mispredicted, and of each line that a window uses how many other lines lie between its use
   before and the window. ``sample_of[i]`` says which sample stands for instance i (-1: it executes nothing). Arrays
   only (``arrays()``, ``profiles_from``), so that a work unit keeps them.
2. ``response.core_response(profiles, workload, node, num_cores=..., warm=...)`` -> ``response_kernel.CoreResponse``.
   Once per core and caches. O(instructions in windows x states): windows run on the detailed model's core
   (node/core/kernel.py) and memory system, beginning with each line in the cache where the lines between say it is,
   at some *states* of what other cores do to this one: their grid is small, and states that put all lines in the same
   caches are run once.
3. ``response_kernel.respond(response, sample, share, elsewhere, cache_wait, memory_wait, out)``. In kernels or from
   Python, whenever the state changes; O(levels). All per *instruction of the instance* (multiply by
   ``profiles.instructions``):

   * ``share``, 0 < share <= 1: of each shared cache, the part that this core's lines may fill (with n equal cores and
     no line in common 1 / n of it; with all lines in common 1);
   * ``elsewhere``, 0 to 1: the probability that what another instance used last lies in another core's private
     caches, so that it comes from the first shared level (1 core: 0; n cores and no scheduler that cares: 1 - 1 / n);
   * ``cache_wait``, ``memory_wait``: cycles that a line from a shared cache, or from main memory, takes longer because
     others ask, too (an empty machine: 0);
   * ``out`` float64[CYCLES.. columns + levels + 1]: ``out[CYCLES]``, ``out[LINES_READ]`` and ``out[LINES_WRITTEN]`` of
     main memory (prefetched ones included), ``out[LINES_SHARED]`` that the first shared cache is asked for, then from
     ``out[FIRST_SERVED]`` on accesses by the level that serves them, the nearest first, main memory last.

A rate changes while an instance runs: whoever simulates time advances it by instructions, d instructions = d cycles /
``out[CYCLES]``.

Method: windows that stand for instances are the micro-traces of Van den Steen et al. ("Analytical processor performance
and power modeling using micro-architecture independent characteristics", IEEE TC 65(12), 2016); distances are those of
Mattson's stack over a spatial sample of lines (Waldspurger et al., "Efficient MRC construction with SHARDS", FAST
2015); whether a set holds a line of that distance is Smith's model ("A comparative study of set associative memory
mapping algorithms", IEEE TSE 4(2), 1978; Hill and Smith, IEEE TC 38(12), 1989). Van den Steen's model makes bounds of a
window: here, the window runs on the model of the core, so that dependences across iterations, stores, line fill
buffers, prefetchers and units are what the detailed model says of them.
"""
