/* Work until MPI_Iprobe finds a message of any source, then receive it from who sent it. */
#include "program.h"
int main(int argc, char **argv) {
    MPI_Status status;
    start(&argc, &argv);
    if (rank == 0) {
        for (int i = 0; i < 2 * (size - 1); i++) {
            int found = 0, bytes;
            while (MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &found, &status), !found) work(4);
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            MPI_Recv(buffer, bytes, MPI_BYTE, status.MPI_SOURCE, 3, MPI_COMM_WORLD, &status);
        }
    } else {
        work(30 * rank);
        MPI_Send(buffer, 600 * rank, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
        work(25);
        MPI_Send(buffer, LARGE, MPI_BYTE, 0, 3, MPI_COMM_WORLD);
    }
    finish();
}
