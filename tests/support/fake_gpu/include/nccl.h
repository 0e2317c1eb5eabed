// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A test double of the part of NCCL that cohort uses, over the double of CUDA's runtime
/// beside it. Like that it is no GPU: `nccl_control.hpp` tells how it behaves and how a test makes
/// it fail, and no figure from it is ever quoted as one of NCCL.
///
/// Names, numbers and the layout of `ncclConfig_t` are those of NCCL 2.28.9, so that the sources of
/// the library and of its tests compile with the real header too. Defining `NCCL_MINOR` and
/// `NCCL_PATCH` leaves out what older versions do not have, and adds the fields of newer ones to
/// `ncclConfig_t`; the library behind stays the same, so such programs are compiled and not run.
/// NCCL's own header includes those of CUDA's half types, this one does not.

#include <cuda_runtime.h>

#include <limits.h>
#include <stddef.h>

#define COHORT_FAKE_NCCL 1

#define NCCL_MAJOR 2
#ifndef NCCL_MINOR
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#endif
#define NCCL_SUFFIX ""
#define NCCL_VERSION(X, Y, Z) \
  (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

extern "C" {

typedef struct ncclComm* ncclComm_t;
#define NCCL_COMM_NULL NULL

#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR -1

typedef struct ncclConfig_v22800 {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 2)
  int trafficClass;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
  int graphUsageMode;
  int numRmaCtx;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 3)
  int maxP2pPeers;
  int graphStreamOrdering;
#endif
} ncclConfig_t;

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 2)
#define COHORT_FAKE_NCCL_CONFIG_26 , NCCL_CONFIG_UNDEF_INT
#else
#define COHORT_FAKE_NCCL_CONFIG_26
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
#define COHORT_FAKE_NCCL_CONFIG_27                                                              \
  , NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
      NCCL_CONFIG_UNDEF_INT
#else
#define COHORT_FAKE_NCCL_CONFIG_27
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
#define COHORT_FAKE_NCCL_CONFIG_28 , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define COHORT_FAKE_NCCL_CONFIG_28
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 3)
#define COHORT_FAKE_NCCL_CONFIG_30 \
  , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#elif NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
#define COHORT_FAKE_NCCL_CONFIG_30 , NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT
#else
#define COHORT_FAKE_NCCL_CONFIG_30
#endif

#define NCCL_CONFIG_INITIALIZER                                                         \
  {                                                                                     \
    sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,            \
        NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR,                                   \
        NCCL_CONFIG_UNDEF_INT COHORT_FAKE_NCCL_CONFIG_26 COHORT_FAKE_NCCL_CONFIG_27     \
            COHORT_FAKE_NCCL_CONFIG_28 COHORT_FAKE_NCCL_CONFIG_30                       \
  }

typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;
typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5,
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
#else
  ncclNumTypes = 10
#endif
} ncclDataType_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device_list);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
ncclResult_t ncclMemAlloc(void** memory, size_t bytes);
ncclResult_t ncclMemFree(void* memory);
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
#endif

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count_each, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count_each, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGather(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclScatter(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream);
#endif
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

}  // extern "C"
