/* A session in place of MPI_Init: a reduction among all, then one among the ranks of the same parity. */
#include <mpi.h>

int main(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm all, half;
    int rank, sum;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "all", MPI_INFO_NULL, MPI_ERRORS_RETURN, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_split(all, rank % 2, rank, &half);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Bcast(&rank, 1, MPI_INT, 1, half);
    MPI_Comm_free(&half);
    MPI_Comm_free(&all);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
    return 0;
}
