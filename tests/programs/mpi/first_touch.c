/* 700 pages that nothing has touched yet, between two barriers; then the same ones again. No OpenMP. */
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 700 * page;
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED || madvise(data, bytes, MADV_NOHUGEPAGE)) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int round = 0; round < 2; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        for (size_t i = 0; i < bytes; i += page) ((volatile char *)data)[i] = 1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
