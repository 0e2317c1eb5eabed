// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The double's subset of nccl.h against what the real header says: compiled with the one, and with
// the other where the toolkit is. Compiling it is the check.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace {

constexpr bool numbers =
    ncclUnhandledCudaError == 1 && ncclSystemError == 2 && ncclInternalError == 3 &&
    ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 &&
    ncclInProgress == 7 && ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 &&
    ncclAvg == 4 && ncclNumOps == 5 && ncclMaxRedOp == 0x7fffffff && ncclInt8 == 0 &&
    ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 && ncclUint64 == 5 &&
    ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9 &&
    ncclScalarDevice == 0 && ncclScalarHostImmediate == 1 && NCCL_SPLIT_NOCOLOR == -1 &&
    NCCL_UNIQUE_ID_BYTES == 128 && sizeof(ncclUniqueId) == 128;
static_assert(numbers);

using moves = ncclResult_t(const void*, void*, std::size_t, ncclDataType_t, ncclComm_t,
                           cudaStream_t);
using moves_with_root = ncclResult_t(const void*, void*, std::size_t, ncclDataType_t, int,
                                     ncclComm_t, cudaStream_t);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 3)
static_assert(ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 7)
static_assert(sizeof(ncclConfig_t) >= 96 && offsetof(ncclConfig_t, maxP2pPeers) == 88 &&
              offsetof(ncclConfig_t, graphStreamOrdering) == 92);
#elif NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
static_assert(sizeof(ncclConfig_t) == 88);
#elif NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
static_assert(sizeof(ncclConfig_t) == 80);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
static_assert(offsetof(ncclConfig_t, graphUsageMode) == 80 &&
              offsetof(ncclConfig_t, numRmaCtx) == 84);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
static_assert(offsetof(ncclConfig_t, blocking) == 16 &&
              offsetof(ncclConfig_t, cgaClusterSize) == 20 &&
              offsetof(ncclConfig_t, minCTAs) == 24 && offsetof(ncclConfig_t, maxCTAs) == 28 &&
              offsetof(ncclConfig_t, netName) == 32 && offsetof(ncclConfig_t, splitShare) == 40 &&
              offsetof(ncclConfig_t, trafficClass) == 44 &&
              offsetof(ncclConfig_t, commName) == 48 &&
              offsetof(ncclConfig_t, collnetEnable) == 56 &&
              offsetof(ncclConfig_t, CTAPolicy) == 60 &&
              offsetof(ncclConfig_t, shrinkShare) == 64 && offsetof(ncclConfig_t, nvlsCTAs) == 68 &&
              offsetof(ncclConfig_t, nChannelsPerNetPeer) == 72 &&
              offsetof(ncclConfig_t, nvlinkCentricSched) == 76);

static_assert(std::is_same_v<decltype(ncclAlltoAll), moves>);
static_assert(std::is_same_v<decltype(ncclGather), moves_with_root>);
static_assert(std::is_same_v<decltype(ncclScatter), moves_with_root>);

[[maybe_unused]] constexpr ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
static_assert(config.size == sizeof config && config.magic == 0xcafebeef &&
              config.version == NCCL_VERSION_CODE && config.blocking == NCCL_CONFIG_UNDEF_INT &&
              config.netName == nullptr && config.commName == nullptr &&
              config.nvlinkCentricSched == NCCL_CONFIG_UNDEF_INT);
#endif

using reduces = ncclResult_t(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t,
                             ncclComm_t, cudaStream_t);
using asks = ncclResult_t(const ncclComm_t, int*);
using ends = ncclResult_t(ncclComm_t);
using init = ncclResult_t(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*);
using split = ncclResult_t(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*);
using premultiplies = ncclResult_t(ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t,
                                   ncclComm_t);
static_assert(std::is_same_v<decltype(ncclAllReduce), reduces>);
static_assert(std::is_same_v<decltype(ncclReduceScatter), reduces>);
static_assert(std::is_same_v<decltype(ncclAllGather), moves>);
static_assert(std::is_same_v<decltype(ncclBroadcast), moves_with_root>);
static_assert(std::is_same_v<decltype(ncclReduce),
                             ncclResult_t(const void*, void*, std::size_t, ncclDataType_t,
                                          ncclRedOp_t, int, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclBcast), ncclResult_t(void*, std::size_t, ncclDataType_t,
                                                               int, ncclComm_t, cudaStream_t)>);
static_assert(
    std::is_same_v<decltype(ncclSend), ncclResult_t(const void*, std::size_t, ncclDataType_t, int,
                                                    ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclRecv), ncclResult_t(void*, std::size_t, ncclDataType_t,
                                                              int, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(ncclCommInitRankConfig), init>);
static_assert(
    std::is_same_v<decltype(ncclCommInitRank), ncclResult_t(ncclComm_t*, int, ncclUniqueId, int)>);
static_assert(
    std::is_same_v<decltype(ncclCommInitAll), ncclResult_t(ncclComm_t*, int, const int*)>);
static_assert(std::is_same_v<decltype(ncclCommSplit), split>);
static_assert(std::is_same_v<decltype(ncclCommFinalize), ends> &&
              std::is_same_v<decltype(ncclCommDestroy), ends> &&
              std::is_same_v<decltype(ncclCommAbort), ends>);
static_assert(std::is_same_v<decltype(ncclCommCount), asks> &&
              std::is_same_v<decltype(ncclCommCuDevice), asks> &&
              std::is_same_v<decltype(ncclCommUserRank), asks>);
static_assert(
    std::is_same_v<decltype(ncclCommGetAsyncError), ncclResult_t(ncclComm_t, ncclResult_t*)>);
static_assert(std::is_same_v<decltype(ncclGetLastError), const char*(ncclComm_t)> &&
              std::is_same_v<decltype(ncclGetErrorString), const char*(ncclResult_t)>);
static_assert(std::is_same_v<decltype(ncclRedOpCreatePreMulSum), premultiplies> &&
              std::is_same_v<decltype(ncclRedOpDestroy), ncclResult_t(ncclRedOp_t, ncclComm_t)>);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)
static_assert(std::is_same_v<decltype(ncclMemAlloc), ncclResult_t(void**, std::size_t)> &&
              std::is_same_v<decltype(ncclMemFree), ncclResult_t(void*)> &&
              std::is_same_v<decltype(ncclCommRegister),
                             ncclResult_t(const ncclComm_t, void*, std::size_t, void**)> &&
              std::is_same_v<decltype(ncclCommDeregister), ncclResult_t(const ncclComm_t, void*)>);
#endif
static_assert(std::is_same_v<decltype(ncclGetVersion), ncclResult_t(int*)> &&
              std::is_same_v<decltype(ncclGetUniqueId), ncclResult_t(ncclUniqueId*)> &&
              std::is_same_v<decltype(ncclGroupStart), ncclResult_t()> &&
              std::is_same_v<decltype(ncclGroupEnd), ncclResult_t()>);

}  // namespace
