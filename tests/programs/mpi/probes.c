/* Ranks 0 and 1: four messages of 10, 20, 30, 40 ints, found by probe, iprobe, mprobe and improbe; the matched ones are
   received by mrecv and imrecv. */
#include <mpi.h>

int main(int argc, char **argv) {
    static int a[100];
    int rank, flag = 0;
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    if (rank == 0) {
        for (int i = 1; i <= 4; i++) MPI_Send(a, 10 * i, MPI_INT, 1, i, world);
    } else if (rank == 1) {
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, &status);
        MPI_Recv(a, 100, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, world, MPI_STATUS_IGNORE);
        while (!flag) MPI_Iprobe(0, 2, world, &flag, MPI_STATUS_IGNORE);
        MPI_Recv(a, 100, MPI_INT, 0, 2, world, MPI_STATUS_IGNORE);
        MPI_Mprobe(0, 3, world, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(a, 100, MPI_INT, &message, MPI_STATUS_IGNORE);
        for (flag = 0; !flag;) MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, &flag, &message, &status);
        MPI_Imrecv(a, 100, MPI_INT, &message, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
