/* An open chain whose ends talk to MPI_PROC_NULL. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[4];
    start(&argc, &argv);
    int up = rank + 1 < size ? rank + 1 : MPI_PROC_NULL, down = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    for (int round = 0; round < 3; round++) {
        MPI_Irecv(buffer, LARGE, MPI_BYTE, down, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(other, LARGE, MPI_BYTE, up, 2, MPI_COMM_WORLD, &requests[1]);
        work(14 * ((rank + round) % size) + 1);
        MPI_Isend(buffer, 900, MPI_BYTE, up, 1, MPI_COMM_WORLD, &requests[2]);
        MPI_Isend(other, LARGE, MPI_BYTE, down, 2, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        MPI_Send(buffer, 50, MPI_BYTE, up, 3, MPI_COMM_WORLD);
        MPI_Recv(buffer, 50, MPI_BYTE, down, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Irecv(other, 10, MPI_BYTE, MPI_PROC_NULL, 4, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(other, 10, MPI_BYTE, MPI_PROC_NULL, 5, MPI_COMM_WORLD, &requests[1]);
        for (int i = 0; i < 2; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
    finish();
}
