/* MPI_Waitany over rendezvous sends and a receive. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[8];
    start(&argc, &argv);
    if (rank == 0) {
        for (int to = 1; to < size; to++)
            MPI_Isend(buffer, LARGE * to, MPI_BYTE, to, 1, MPI_COMM_WORLD, &requests[to - 1]);
        MPI_Irecv(other, 100, MPI_BYTE, size - 1, 2, MPI_COMM_WORLD, &requests[size - 1]);
        for (int i = 0; i < size; i++) {
            int index;
            MPI_Waitany(size, requests, &index, MPI_STATUS_IGNORE);
            work(4 + index);
        }
    } else {
        work(50 + (rank * 131) % 200);
        MPI_Recv(buffer, LARGE * rank, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == size - 1) MPI_Send(buffer, 100, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
    finish();
}
