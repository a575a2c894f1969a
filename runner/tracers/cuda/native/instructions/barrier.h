// Barriers in shared memory (mbarrier). What 64 bits of one hold follows from how compiled code makes one and takes the
// pending count out of a state: for sm_90 and later
//   bits 1 to 20: 2^20 less the arrivals of a phase, 21 to 42: bytes that transactions still have to bring (signed),
//   43 to 62: 2^20 less the arrivals that are pending (0: none), 63: the phase's parity;
// for sm_80 the lower word holds 2^30 less the arrivals, the upper one 2^31 less those pending, and the parity in bit 31.
#ifndef MANYSCALE_BARRIER_H
#define MANYSCALE_BARRIER_H

#include "warp.h"

// Bytes of a transaction arrived, at a shared address that names its block. False, and a problem, where there is none.
bool complete_transaction(const Context *at, uint32_t address, uint32_t bytes);
#endif
