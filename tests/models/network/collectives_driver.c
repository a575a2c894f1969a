/* Runs a list of collectives under SMPI and prints when each participant leaves each of them.
 *
 * argv[1] names a file of blank-separated numbers: the number of cases, then per case
 *   kind nonblocking root element_bytes num_counts counts[num_counts] arrival_s[n] overlap_s[n]
 * Case k begins at k seconds; participant i enters it arrival_s[i] later and, if non-blocking, waits for it
 * overlap_s[i] after the call. counts are elements: one for all, n for the v kinds, n * n for alltoallv.
 * Output: "case participant seconds-since-the-case-began". */
#include <mpi.h>
#include <simgrid/actor.h>
#include <stdio.h>
#include <stdlib.h>

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, SCAN, EXSCAN, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV,
       ALLTOALL, ALLTOALLV, REDUCE_SCATTER };

#define CALL(name, iname, ...) (nonblocking ? MPI_##iname(__VA_ARGS__, &request) : MPI_##name(__VA_ARGS__))

static double number(FILE *file)
{
  double value;
  if (fscanf(file, "%lf", &value) != 1)
    abort();
  return value;
}

int main(int argc, char *argv[])
{
  int rank, n;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  FILE *file = fopen(argv[1], "r");
  int num_cases = number(file);
  for (int k = 0; k < num_cases; k++) {
    int kind = number(file), nonblocking = number(file), root = number(file), element = number(file);
    int num_counts = number(file);
    int *counts = calloc(num_counts + 1, sizeof *counts);
    long total = 0;
    for (int i = 0; i < num_counts; i++)
      total += counts[i] = number(file);
    double arrival = 0, overlap = 0, value;
    for (int i = 0; i < 2 * n; i++) {
      value = number(file);
      if (i == rank)
        arrival = value;
      if (i == n + rank)
        overlap = value;
    }
    MPI_Datatype type = element == 8 ? MPI_DOUBLE : MPI_BYTE;
    MPI_Op op = element == 8 ? MPI_SUM : MPI_BOR;
    int count = counts[0];
    long space = (num_counts == 1 ? (long)count * n : total) * element + 8;
    char *in = calloc(space, 1), *out = calloc(space, 1);
    int *starts = calloc(n, sizeof *starts), *incoming = calloc(n, sizeof *incoming);
    int *in_starts = calloc(n, sizeof *in_starts), *row = counts + (num_counts == n * n ? n * rank : 0);
    for (int i = 1; num_counts >= n && i < n; i++)
      starts[i] = starts[i - 1] + row[i - 1];
    for (int i = 0; num_counts == n * n && i < n; i++)
      incoming[i] = counts[n * i + rank];
    for (int i = 1; i < n; i++)
      in_starts[i] = in_starts[i - 1] + incoming[i - 1];

    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm world = MPI_COMM_WORLD;
    sg_actor_sleep_for(k + arrival - MPI_Wtime());
    switch (kind) {
      case BARRIER: CALL(Barrier, Ibarrier, world); break;
      case BCAST: CALL(Bcast, Ibcast, in, count, type, root, world); break;
      case REDUCE: CALL(Reduce, Ireduce, in, out, count, type, op, root, world); break;
      case ALLREDUCE: CALL(Allreduce, Iallreduce, in, out, count, type, op, world); break;
      case SCAN: CALL(Scan, Iscan, in, out, count, type, op, world); break;
      case EXSCAN: CALL(Exscan, Iexscan, in, out, count, type, op, world); break;
      case GATHER: CALL(Gather, Igather, in, count, type, out, count, type, root, world); break;
      case GATHERV:
        CALL(Gatherv, Igatherv, in, counts[rank], type, out, counts, starts, type, root, world);
        break;
      case SCATTER: CALL(Scatter, Iscatter, in, count, type, out, count, type, root, world); break;
      case SCATTERV:
        CALL(Scatterv, Iscatterv, in, counts, starts, type, out, counts[rank], type, root, world);
        break;
      case ALLGATHER: CALL(Allgather, Iallgather, in, count, type, out, count, type, world); break;
      case ALLGATHERV:
        CALL(Allgatherv, Iallgatherv, in, counts[rank], type, out, counts, starts, type, world);
        break;
      case ALLTOALL: CALL(Alltoall, Ialltoall, in, count, type, out, count, type, world); break;
      case ALLTOALLV:
        CALL(Alltoallv, Ialltoallv, in, row, starts, type, out, incoming, in_starts, type, world);
        break;
      case REDUCE_SCATTER:
        CALL(Reduce_scatter, Ireduce_scatter, in, out, counts, type, op, world);
        break;
      default: abort();
    }
    if (nonblocking) {
      sg_actor_sleep_for(overlap);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    printf("%d %d %.12f\n", k, rank, MPI_Wtime() - k);
    free(in), free(out), free(starts), free(incoming), free(in_starts), free(counts);
  }
  fclose(file);
  MPI_Finalize();
  return 0;
}
