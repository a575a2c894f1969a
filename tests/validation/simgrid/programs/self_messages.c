/* Messages to oneself: posted either way round, large and small, by MPI_Sendrecv, persistent. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request requests[3];
    start(&argc, &argv);
    work(5 * rank + 1);
    MPI_Irecv(other, LARGE, MPI_BYTE, rank, 1, MPI_COMM_WORLD, &requests[0]);
    work(3);
    MPI_Isend(buffer, LARGE, MPI_BYTE, rank, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Send(buffer, 800, MPI_BYTE, rank, 2, MPI_COMM_WORLD);
    work(2);
    MPI_Recv(other, 800, MPI_BYTE, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(buffer, LARGE, MPI_BYTE, rank, 0, other, LARGE, MPI_BYTE, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv_init(other, 50, MPI_INT, rank, 4, MPI_COMM_WORLD, &requests[2]);
    MPI_Start(&requests[2]);
    MPI_Ssend(buffer, 50, MPI_INT, rank, 4, MPI_COMM_WORLD);
    MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    finish();
}
