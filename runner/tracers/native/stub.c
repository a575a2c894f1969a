/* The callbacks of clang's SanitizerCoverage, doing nothing: what a program built for the detailed level links, so that
   it runs untraced, too. The tracer, loaded before it, has the same functions and takes their place. */
#define CALLBACK(name) \
    void __sanitizer_cov_##name(void); \
    __attribute__((visibility("default"), weak)) void __sanitizer_cov_##name(void) {}

CALLBACK(trace_pc_guard_init)
CALLBACK(trace_pc_guard)
CALLBACK(pcs_init)
CALLBACK(8bit_counters_init)
CALLBACK(load1)
CALLBACK(load2)
CALLBACK(load4)
CALLBACK(load8)
CALLBACK(load16)
CALLBACK(store1)
CALLBACK(store2)
CALLBACK(store4)
CALLBACK(store8)
CALLBACK(store16)
