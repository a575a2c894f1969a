/* A pool of tasks: the master answers whoever asks first. Tasks differ, so the order does too. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Status status;
    int task = 0;
    start(&argc, &argv);
    if (rank == 0) {
        for (int asked = 0; asked < 20 + size - 1; asked++) {
            MPI_Recv(buffer, 4000, MPI_BYTE, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
            work(2);
            task = asked < 20 ? asked + 1 : 0;
            MPI_Send(&task, 1, MPI_INT, status.MPI_SOURCE, 2, MPI_COMM_WORLD);
        }
    } else {
        MPI_Send(buffer, 4, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        while (MPI_Recv(&task, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &status), task) {
            work(17 + task * task * 13 % 101 + 7 * rank);
            MPI_Send(buffer, 4 + 100 * task, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
    finish();
}
