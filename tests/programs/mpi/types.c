/* Rank 0 to rank 1, tag 1 to 3: a vector of 5 blocks of 2 doubles (80 bytes), sent twice at once (160), a struct of an
   int and 3 chars (7 bytes) sent 10 times at once, nothing of a null type. */
#include <mpi.h>
#include <stddef.h>

struct mixed { int a; char b[3]; };

int main(int argc, char **argv) {
    int rank;
    double a[200] = {0};
    struct mixed m[10] = {{0}};
    MPI_Datatype vector, mixed, resized;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Type_vector(5, 2, 8, MPI_DOUBLE, &vector);
    MPI_Type_commit(&vector);
    MPI_Type_create_struct(2, (int[]){1, 3}, (MPI_Aint[]){0, offsetof(struct mixed, b)},
                           (MPI_Datatype[]){MPI_INT, MPI_CHAR}, &mixed);
    MPI_Type_create_resized(mixed, 0, sizeof(struct mixed), &resized);
    MPI_Type_commit(&resized);
    if (rank == 0) {
        MPI_Send(a, 1, vector, 1, 1, MPI_COMM_WORLD);
        MPI_Send(a, 2, vector, 1, 2, MPI_COMM_WORLD);
        MPI_Send(m, 10, resized, 1, 3, MPI_COMM_WORLD);
        MPI_Send(NULL, 0, MPI_INT, 1, 4, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(a, 1, vector, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(a, 2, vector, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(m, 10, resized, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(NULL, 0, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Type_free(&vector);
    MPI_Finalize();
    return 0;
}
