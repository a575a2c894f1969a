/* Every non-blocking collective with a root, with work between post and wait. */
#include "program.h"
int main(int argc, char **argv) {
    int counts[16], places[16];
    MPI_Request request;
    start(&argc, &argv);
    for (int i = 0; i < size; i++) counts[i] = i == 2 ? 0 : 5000 * i, places[i] = 40000 * i;
    for (int root = 0; root < size; root += 2) {
        work(10 * ((rank + root) % size));
        MPI_Ibcast(buffer, LARGE, MPI_BYTE, root, MPI_COMM_WORLD, &request);
        work(30 + rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Ireduce(buffer, other, 3000, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, &request);
        work(5 * rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Igather(buffer, 20000, MPI_INT, other, 20000, MPI_INT, root, MPI_COMM_WORLD, &request);
        work(15), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iscatter(buffer, 700, MPI_DOUBLE, other, 700, MPI_DOUBLE, root, MPI_COMM_WORLD, &request);
        work(2), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Igatherv(buffer, counts[rank], MPI_CHAR, other, counts, places, MPI_CHAR, root, MPI_COMM_WORLD, &request);
        work(60 - 10 * rank), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Iscatterv(buffer, counts, places, MPI_CHAR, other, counts[rank], MPI_CHAR, root, MPI_COMM_WORLD, &request);
        work(9), MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    finish();
}
