/* A ring: 5 times, each rank computes for a while, sends 100 doubles to the right with tag 3 (isend), receives from the
   left into room for 200 (irecv) and waits for both; iterations are marked by MPI_Pcontrol. */
#include <mpi.h>

int main(int argc, char **argv) {
    double out[100] = {0}, in[200];
    int rank, size;
    volatile double x = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 5; i++) {
        MPI_Request requests[2];
        MPI_Pcontrol(1000 + i);
        for (int k = 0; k < 200000 * (rank + 1); k++) x = x * 1.0000001 + 1e-9;
        MPI_Irecv(in, 200, MPI_DOUBLE, (rank + size - 1) % size, 3, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, 100, MPI_DOUBLE, (rank + 1) % size, 3, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
