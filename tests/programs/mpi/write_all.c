/* Four ranks write 64 MB together, three read 1 MB each together, rank 1 reads 1 MB alone, rank 0 writes 8 B. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, each = 16000000;
    char name[4096], *data;
    MPI_File file;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    data = calloc((size_t)each, 1);
    snprintf(name, sizeof name, "%s.data", argv[0]);
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    MPI_File_write_at_all(file, (MPI_Offset)each * rank, data, each / 8, MPI_DOUBLE, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, 0, data, rank == 3 ? 0 : 1000000, MPI_BYTE, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_File_read_at(file, 0, data, 1000000, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_iwrite_at_all(file, 0, data, rank == 0 ? 8 : 0, MPI_BYTE, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    free(data);
    MPI_Finalize();
    return 0;
}
