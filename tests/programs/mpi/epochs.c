/* Two ranks. What rank 1 does with rank 0's window, by WHAT:
   "post": puts 8 bytes between post, start, complete and wait; "lock": between lock and unlock; "flush": and waits by a
   flush before it unlocks; "request": by a request; "atomic": fetches and adds 8 bytes. "file": both write a file
   together, in a split collective and a non-blocking one. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static void write_file(const char *program) {
    double value = 1;
    char name[4096];
    MPI_File file;
    MPI_Request request;
    snprintf(name, sizeof name, "%s.data", program);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    MPI_File_write_all_begin(file, &value, 1, MPI_DOUBLE);
    MPI_File_write_all_end(file, &value, MPI_STATUS_IGNORE);
    MPI_File_iwrite_all(file, &value, 1, MPI_DOUBLE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
}

int main(int argc, char **argv) {
    int rank, other;
    double *memory, value = 1, before;
    MPI_Win win;
    MPI_Group world, group;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    if (!strcmp(argv[1], "file")) {
        write_file(argv[0]);
        MPI_Finalize();
        return 0;
    }
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &other, &group);
    MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    if (!strcmp(argv[1], "post") && rank == 0) {
        MPI_Win_post(group, 0, win);
        MPI_Win_wait(win);
    } else if (!strcmp(argv[1], "post")) {
        MPI_Win_start(group, 0, win);
        MPI_Put(&value, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, win);
        MPI_Win_complete(win);
    } else if (rank == 1) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        if (!strcmp(argv[1], "atomic")) MPI_Fetch_and_op(&value, &before, MPI_DOUBLE, 0, 0, MPI_SUM, win);
        else if (strcmp(argv[1], "request")) MPI_Put(&value, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, win);
        else MPI_Rput(&value, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, win, &request);
        if (!strcmp(argv[1], "request")) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (!strcmp(argv[1], "flush")) MPI_Win_flush(0, win);
        MPI_Win_unlock(0, win);
    }
    MPI_Win_free(&win);
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    MPI_Finalize();
    return 0;
}
