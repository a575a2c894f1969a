/* Persistent requests, each started by MPI_Start and waited for. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Request send[2], receive[2];
    start(&argc, &argv);
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Send_init(buffer, 3000, MPI_INT, next, 1, MPI_COMM_WORLD, &send[0]);
    MPI_Send_init(buffer, LARGE, MPI_BYTE, previous, 2, MPI_COMM_WORLD, &send[1]);
    MPI_Recv_init(other, 3000, MPI_INT, previous, 1, MPI_COMM_WORLD, &receive[0]);
    MPI_Recv_init(other, LARGE, MPI_BYTE, next, 2, MPI_COMM_WORLD, &receive[1]);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 2; i++) MPI_Start(&receive[i]);
        work(10 * ((rank * 2 + round) % size) + 1);
        for (int i = 0; i < 2; i++) MPI_Start(&send[i]);
        work(4);
        for (int i = 0; i < 2; i++) MPI_Wait(&receive[i], MPI_STATUS_IGNORE), work(2);
        for (int i = 0; i < 2; i++) MPI_Wait(&send[i], MPI_STATUS_IGNORE);
    }
    finish();
}
