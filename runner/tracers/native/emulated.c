/* The detailed level of a program as it is, under an emulator: the emulator's plugin (qemu_plugin.c) records blocks and
   accesses, the tracer inside tells it what is not the program's own and where segments end, by instructions that do
   nothing (MS_TELL), and writes down what each segment is of. The n-th of these marks is of the n-th such instruction. */
#include "trace.h"

#define MARKS 4096

static struct mark { uint32_t num_operations, num_events, task; } marks[MARKS];
static uint32_t num_marks;

static void flush(void) {
    uint32_t count = num_marks;
    num_marks = 0;
    if (count && ms.active) ms_write_chunk(MS_DETAIL, marks, count * sizeof *marks);
}

void ms_emulated_segment(void) {
    if (num_marks == MARKS) flush();
    marks[num_marks++] = (struct mark){ms.num_operations, ms.num_events, ms.task};
    MS_TELL(MS_ENDS);
}

void ms_emulated_window(int open) {
    if (!open) MS_TELL(MS_HIDES);
    else if (!ms.hidden) MS_TELL(MS_SHOWS);
}

void ms_emulated_finish(void) {
    MS_TELL(MS_HIDES);
    ms.hidden++;
    flush();
}
