// The blocks of a launch while it runs.
#ifndef MANYSCALE_SCHEDULE_H
#define MANYSCALE_SCHEDULE_H

#include "warp.h"

typedef struct {
    uint64_t number;             // of the block
    long begin[2], end[2];       // in the two files
} Kept;

typedef struct {
    Launch *launch;
    uint8_t *bank_zero;
    uint32_t bank_bytes;
    uint32_t shape[3], of_cluster;  // blocks of a cluster
    uint32_t clusters[3];        // of the grid
    uint64_t started, total;     // clusters
    Cluster *running, *free;
    uint64_t resident, limit;    // blocks
    uint64_t written, executed;  // blocks whose records are there; instructions
    uint32_t asked;              // passes in which all ask for what has not changed
    Sink into[2], later[2];      // records and lanes; of blocks that ended before an earlier one
    Kept *kept;
    size_t num_kept, room;
} Schedule;

// Runs blocks until ``end`` clusters have been started and all that were have ended. False: the launch failed.
bool run_until(Schedule *schedule, uint64_t end);
// Where the next cluster of the grid stands: of each of its blocks.
void place_of_block(const Schedule *schedule, uint64_t cluster, uint32_t member, uint32_t ctaid[3]);
Cluster *make_cluster(const Schedule *schedule, Launch *launch);  // NULL: no memory is left
void free_clusters(Cluster *first);
void out_of(Launch *launch, const char *what);  // a problem of the launch, not of an instruction

// The whole launch by threads (workers.c), as blocks one after the other would leave memory and records.
void run_by_workers(Schedule *schedule);

#endif
