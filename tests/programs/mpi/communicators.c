/* On 4 ranks: a barrier, or a message from the first member to the second (tag 1, 8 bytes), on each kind of
   communicator. Handles are freed and used again. */
#include <mpi.h>

static void talk(MPI_Comm comm) {
    int rank, size;
    char a[8] = {0};
    if (comm == MPI_COMM_NULL) return;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (size > 1 && rank == 0) MPI_Send(a, 8, MPI_BYTE, 1, 1, comm);
    if (size > 1 && rank == 1) MPI_Recv(a, 8, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE);
    MPI_Barrier(comm);
}

int main(int argc, char **argv) {
    int rank;
    MPI_Comm world = MPI_COMM_WORLD, dup, idup, odd, reversed, first, some, cart, row, graph, dist, inter, merged;
    MPI_Group all, group;
    MPI_Request request;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);

    talk(MPI_COMM_SELF);
    MPI_Comm_dup(world, &dup); /* 0 1 2 3 */
    talk(dup);
    MPI_Comm_free(&dup);
    MPI_Info_create(&info);
    MPI_Comm_dup_with_info(world, info, &dup); /* 0 1 2 3, perhaps under the freed handle */
    talk(dup);
    MPI_Comm_idup(dup, &idup, &request); /* 0 1 2 3 */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    talk(idup);
    MPI_Comm_split(world, rank % 2, rank, &odd); /* 0 2 and 1 3 */
    talk(odd);
    MPI_Comm_split(world, 0, -rank, &reversed); /* 3 2 1 0 */
    talk(reversed);
    MPI_Comm_split(world, rank ? MPI_UNDEFINED : 0, 0, &first); /* 0 */
    if (rank == 0) talk(first);
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, 2, (int[]){3, 1}, &group);
    MPI_Comm_create(world, group, &some); /* 3 1 */
    talk(some);
    if (some != MPI_COMM_NULL) MPI_Comm_free(&some);
    if (rank % 2) MPI_Comm_create_group(world, group, 7, &some); /* 3 1 */
    if (rank % 2) talk(some);
    MPI_Cart_create(world, 2, (int[]){2, 2}, (int[]){1, 0}, 0, &cart); /* 0 1 2 3 */
    talk(cart);
    MPI_Cart_sub(cart, (int[]){0, 1}, &row); /* 0 1 and 2 3 */
    talk(row);
    MPI_Graph_create(world, 4, (int[]){1, 2, 3, 4}, (int[]){1, 0, 3, 2}, 0, &graph); /* 0 1 2 3 */
    talk(graph);
    int left = (rank + 3) % 4, right = (rank + 1) % 4;
    MPI_Dist_graph_create_adjacent(world, 1, &left, MPI_UNWEIGHTED, 1, &right, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &dist);
    talk(dist); /* 0 1 2 3 */

    /* between 0 2 and 1 3: rank r to its like in the other group, 16 bytes with tag 2 */
    MPI_Intercomm_create(odd, 0, world, rank % 2 ? 0 : 1, 9, &inter);
    char a[16] = {0}, b[16];
    MPI_Sendrecv(a, 16, MPI_BYTE, rank / 2, 2, b, 16, MPI_BYTE, rank / 2, 2, inter, MPI_STATUS_IGNORE);
    MPI_Barrier(inter);
    MPI_Intercomm_merge(inter, rank % 2 == 0, &merged); /* 1 3 0 2 */
    talk(merged);
    MPI_Finalize();
    return 0;
}
